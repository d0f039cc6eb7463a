/* tests/fuzz/frames.c: see frames.h. */
#include "frames.h"

#include <string.h>

size_t frames_read(const uint8_t *data, size_t size, struct frame frames[FRAMES_MAX])
{
        size_t n = 0;
        while (size >= 3 && n < FRAMES_MAX) {
                size_t len = (size_t)data[1] | (size_t)data[2] << 8;
                if (len > size - 3)
                        len = size - 3;
                frames[n++] = (struct frame){ data[0], len, data + 3 };
                data += 3 + len;
                size -= 3 + len;
        }
        return n;
}

bool frames_add(uint8_t *out, size_t *len, size_t cap, uint8_t kind, const void *data,
                size_t data_len)
{
        if (data_len > UINT16_MAX || *len + 3 + data_len > cap)
                return false;
        uint8_t *at = out + *len;
        at[0] = kind;
        at[1] = (uint8_t)(data_len & 0xff);
        at[2] = (uint8_t)(data_len >> 8);
        if (data_len)
                memcpy(at + 3, data, data_len);
        *len += 3 + data_len;
        return true;
}
