// What the frames up to one tell: who wrote each block last, since when it is in use, and
// in which steps something happens.

// mostSlots of a pool are followed one by one; of a larger one only whole blocks.
const mostSlots = 2048

const newPast = () => ({ at: -1, device: [nothing(), nothing()] })
const nothing = () => ({ writer: [], slots: [], since: [], used: [] })

// pastOf is what is known at frame i, by device:
//   writer  by block, the name of the sequence that had it last, or has it
//   slots   by slot, the name of the sequence that wrote it last; of small pools
//   since   by block, the frame in which its use began, or ended
// It goes on from the frame of the last call, where that lies before.
function pastOf(run, i) {
  const chain = []
  let past = run.past
  for (let k = i; k >= 0 && !(past && past.at === k); k = run.frames[k].before) chain.push(k)
  const reaches = past && past.at >= 0 && (chain.length ? run.frames[chain[chain.length - 1]].before : i) === past.at
  if (!reaches) past = run.past = newPast()
  for (const k of chain.reverse()) advance(run, past, k)
  return past.device
}

function advance(run, past, k) {
  const f = run.frames[k], used = [[], []]
  for (const s of f.sequences) {
    const d = past.device[s.device], each = (s.device ? run.cpu : f.blocks) * run.size <= mostSlots
    s.table.forEach((id, at) => {
      if (id < 0) return
      used[s.device][id] = true
      if (s.tokens <= at * run.size) return // reserved, not written
      d.writer[id] = s.name
      if (each) for (let slot = 0; slot < Math.min(run.size, s.tokens - at * run.size); slot++) d.slots[id * run.size + slot] = s.name
    })
  }
  for (const [device, id, count] of f.counts) used[device][id] = count > 0
  for (const device of [0, 1]) {
    const n = device ? run.cpu : f.blocks
    if (n === 0) past.device[device] = nothing() // the engine is gone
    const d = past.device[device]
    for (let id = 0; id < n; id++) if (d.since[id] === undefined || !d.used[id] !== !used[device][id]) d.since[id] = k
    d.used = used[device]
  }
  past.at = k
}

// remains are what a block still holds from before: the slots that have not been overwritten,
// as [from, to, name of the sequence that wrote them] each; of a large pool the whole block.
function remains(run, device, id, b, past) {
  if (b.state === 'held') return []
  const d = past[device], { size } = run
  if (!d.slots.length) return b.owners.length || d.writer[id] === undefined ? [] : [[0, size, d.writer[id]]]
  const list = []
  for (let slot = b.owners.length ? b.filled : 0; slot < size; slot++) {
    const name = d.slots[id * size + slot], last = list[list.length - 1]
    if (name === undefined) continue
    if (last && last[1] === slot && last[2] === name) last[1]++
    else list.push([slot, slot + 1, name])
  }
  return list
}

// eventful says whether more happens in a step than that tokens are written. In a large pool
// some sequence takes a block in nearly every step, which is then no event.
function eventful(run, i) {
  const f = run.frames[i], small = f.blocks <= 64
  if (f.before < 0 || f.refused) return true
  if (f.copies.length || f.out.length || f.in.length || f.hits.length) return true
  const was = run.frames[f.before]
  if (f.blocks !== was.blocks || f.sequences.length !== was.sequences.length) return true
  if (f.waiting !== was.waiting || f.running !== was.running || f.swapped !== was.swapped) return true
  return f.sequences.some(s => {
    const old = was.live.get(s.name)
    return !old || small && old.table !== s.table
  })
}
