// What an event does to a workload: the same as in the server's core (src/core/workload.c), for the few fields that the lists show. Pure.
//
// A row never goes back: an event that the row has already seen (its seq) changes nothing, so lists and events may arrive in any order.

export function rowOf(w) {
  const s = w.status || {}, r = w.resources || {}, retry = w.retry || {}, m = w.metadata || {};
  return {
    id: w.id, type: w.type, seq: w.resource_version || 0, phase: s.phase || 'Pending', reason: s.reason || '', text: s.failure_reason || '',
    node: w.assigned_node || '', desired: w.desired_state || 'Running', cpu: r.cpu || 0, mem: r.memory_mb || 0, labels: w.labels || null,
    attempts: retry.attempts || 0, retryAt: Date.parse(retry.next_retry_at) || 0, restarts: s.restarts || 0,
    created: Date.parse(m.created_at) || 0, changed: Date.parse(s.last_updated) || 0,
  };
}

const isFinished = (row) => row.phase === 'Completed' || row.phase === 'Failed';
const onNode = (row) => row.phase === 'Running' || row.phase === 'Scheduled' || row.phase === 'Updating';

// The row after the event; null: it is gone; undefined: it is not known and must be asked for.
export function fold(row, e) {
  if (!row) return e.type === 'WorkloadApplied' && e.action === 'Created' ? created(e) : e.type === 'WorkloadDeleted' ? null : undefined;
  if (e.seq <= row.seq) return row;
  const apply = APPLY[e.type];
  if (apply === null) return null;
  const next = { ...row, seq: e.seq, changed: Date.parse(e.timestamp) };
  return (apply && apply(next, e)) || next;
}

function created(e) {
  const w = e.workload, row = rowOf(w);
  row.id = e.workload_id;
  row.seq = e.seq;
  row.created = row.changed = Date.parse(e.timestamp);
  row.phase = row.desired === 'Stopped' ? 'Stopped' : 'Pending';
  return row;
}

function end(phase) {
  return (row, e) => {
    row.phase = phase;
    row.reason = e.reason || '';
    row.text = e.status?.failure_reason || '';
    row.retryAt = Date.parse(e.retry?.next_retry_at) || 0;
    if (e.retry) row.attempts = e.retry.attempts || 0;
  };
}

function launch(row, phase) {
  row.phase = phase;
  row.retryAt = 0;
}

const APPLY = {
  WorkloadApplied(row, e) {
    const next = rowOf(e.workload), finished = isFinished(row) || row.phase === 'RetryPending';
    return { ...row, type: next.type, cpu: next.cpu, mem: next.mem, labels: next.labels, attempts: 0, retryAt: 0, reason: '', text: '',
             phase: finished ? (row.desired === 'Stopped' ? 'Stopped' : 'Pending') : row.phase };
  },
  WorkloadRelabelled(row, e) {
    row.labels = rowOf(e.workload).labels;
  },
  WorkloadDesired(row, e) {
    row.desired = e.desired_state;
    row.reason = e.reason || '';
    row.retryAt = 0;
    if (e.desired_state === 'Stopped') {
      if (!onNode(row)) row.phase = 'Stopped';
    } else {
      row.attempts = 0;
      row.phase = 'Pending';
    }
  },
  WorkloadDeleting(row, e) {
    row.desired = 'Deleted';
    row.reason = e.reason || '';
    row.retryAt = 0;
    row.phase = 'Deleting';
  },
  WorkloadDeleted: null,
  WorkloadScheduled(row, e) {
    row.node = e.node_id;
    row.reason = 'placed';
    launch(row, 'Scheduled');
  },
  WorkloadPending(row, e) {
    row.reason = e.reason || '';
    if (!row.node) row.text = e.message || '';
  },
  WorkloadLaunched(row, e) {
    if (e.reason && e.reason !== 'spec-changed') row.restarts++;
    launch(row, e.reason === 'spec-changed' ? 'Updating' : 'Scheduled');
    row.reason = e.reason || '';
  },
  WorkloadStarted: end('Running'),
  WorkloadStopped: end('Stopped'),
  WorkloadCompleted: end('Completed'),
  WorkloadFailed: end('Failed'),
  RetryScheduled: end('RetryPending'),
  RetryTriggered(row, e) {
    row.retryAt = 0;
    if (e.retry) row.attempts = e.retry.attempts || 0;
    if (isFinished(row)) row.reason = '';
    row.phase = 'Pending';
  },
  Rescheduled(row, e) {
    row.node = '';
    row.phase = row.desired === 'Stopped' ? 'Stopped' : 'Pending';
    row.reason = e.reason || '';
    row.retryAt = 0;
  },
  RetryReset(row) {
    row.attempts = 0;
  },
};

// Capacity of the named node may be another one after these.
export const movesCapacity = new Set(['WorkloadApplied', 'WorkloadScheduled', 'WorkloadCompleted', 'WorkloadFailed', 'WorkloadDeleted', 'Rescheduled', 'WorkloadStopped',
  'WorkloadDesired', 'RetryTriggered', 'UnitRemoved', 'NodeRegistered', 'NodeReady', 'NodeLost', 'NodeWishChanged', 'UnitUnknown']);

// What a table of events shows of one.
export function brief(e) {
  return { seq: e.seq, type: e.type, at: Date.parse(e.timestamp), workload: e.workload_id || '', node: e.node_id || '', reason: e.reason || '',
           message: e.message || sentence(e), actor: e.actor || '', request: e.request_id || '' };
}

function sentence(e) {
  switch (e.type) {
    case 'WorkloadApplied': return e.action === 'Created' ? 'created' : `changed to ${e.workload?.revision_id || 'a new revision'}`;
    case 'WorkloadRelabelled': return 'labels, priority or constraints changed; what runs goes on';
    case 'NodeTainted': return 'taints changed';
    case 'WorkloadScheduled': return `placed on ${e.node_id}${e.placement?.candidates ? `, one of ${e.placement.candidates} that could take it` : ''}`;
    case 'WorkloadDesired': return `${e.desired_state} is wanted`;
    case 'WorkloadDeleting': return 'deletion was asked for';
    case 'WorkloadDeleted': return e.tombstone ? 'gone from the records; its node will be told' : 'gone';
    case 'WorkloadLaunched': return `${e.action || 'launched'}${e.reason ? `: ${e.reason}` : ''}`;
    case 'WorkloadStarted': return 'runs';
    case 'WorkloadCompleted': return `ended with code ${e.status?.exit_code ?? 0}`;
    case 'NodeWishChanged': return `wanted: ${e.wish}`;
    case 'ClusterCreated': return `cluster ${e.cluster?.cluster_id || ''}`;
    default: return e.action || '';
  }
}
