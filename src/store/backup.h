/* store/backup.h: a store in one file. Only files of this folder include it.
 *
 * The file:
 *
 *      "berth backup 1\n"     or 2, if events are kept apart from the log (store.h): a berth that
 *      does not know them refuses it with a sentence frames: kind (1 byte), length of what follows
 *      (4 bytes, least significant first), that many bytes
 *              'H'  Pb__BackupHead                                            once, first
 *              'E'  sequence (8 bytes, least significant first), packed event  in order, without a
 *                   gap; form 2: from Pb__BackupHead.floor on
 *              'C'  key, a zero byte, packed record: of the checkpoint         ordered by key
 *              'R'  key, a zero byte, packed record: at the head               ordered by key
 *              'Z'  Pb__BackupEnd                                             once
 *      SHA-256 of all bytes before it (32 bytes), and nothing behind it
 *
 * It can be written and read from the first byte to the last, whatever store it came from. Who
 * opens one has read all of it and knows that it is whole.
 */
#ifndef BERTH_STORE_BACKUP_H
#define BERTH_STORE_BACKUP_H

#include "store/store_ops.h"

#define BACKUP_MAGIC "berth backup 1\n"
#define BACKUP_MAGIC_SPARSE "berth backup 2\n"
#define BACKUP_MAGIC_ANY "berth backup "
#define BACKUP_SUM_BYTES 32
#define BACKUP_FRAME_BYTES 5               /* kind and length */
#define BACKUP_MAX_FRAME_BYTES (64u << 20) /* far more than any record */

#endif
