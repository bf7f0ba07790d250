// The stories of a page, the legend, and the steps that a live page asks for.

const data = JSON.parse($('recording').textContent)
const { scenes, live } = data
let scene = -1

// enter builds the boards of a story.
function enter(n) {
  scene = n
  const { title, note, boards: recordings } = scenes[n], hues = new Map()
  boards = recordings.map(r => newRun(r, hues)).map((run, k) => newBoard(run, k, recordings.length))
  kept = pointed = undefined
  $('after').append($('legend'), $('events')) // out of the board that goes
  $('boards').replaceChildren(...boards.map(b => b.element))
  $('boards').classList.toggle('pair', boards.length > 1)
  end = boards[0].run.frames.length - 1
  $('slider').max = end
  $('event-list').replaceChildren()
  if (boards.length === 1) {
    boards[0].parts.queues.after($('events'))
    boards[0].parts.pools.append($('legend'))
  }
  if (scenes.length > 1) {
    const [run] = boards.map(b => b.run)
    $('title').textContent = title
    document.title = title + ' – memory map'
    $('story').value = n
    $('about').replaceChildren(...boards.length > 1 ? [note] : [make('b', '', run.system), run.note && ' · ' + run.note])
  }
  $('which').replaceChildren(...[['', 'both'], ...boards.map((b, k) => [String(k + 1), b.run.system])].map(([value, name]) => new Option(name, value)))
  $('which-part').hidden = boards.length === 1
  legend()
}

// only shows one board of two.
function only(which) {
  $('which').value = boards[Number(which) - 1] ? which : ''
  boards.forEach((b, k) => { b.element.hidden = $('which').value !== '' && $('which').value !== String(k + 1) })
  $('boards').classList.toggle('pair', boards.length > 1 && !$('which').value)
  for (const b of boards) b.fitted = false
}

// ---- The legend shows what occurs.

function sample(state, mark, says, sign, who, more) {
  const li = make('li'), cell = make('div', 'cell')
  cell.setAttribute('aria-hidden', 'true')
  if (state) cell.dataset.state = state
  if (mark) cell.dataset.mark = mark
  Object.assign(cell.dataset, more)
  cell.style.setProperty('--c', 'var(--c0)')
  cell.style.setProperty('--d', 'var(--c1)')
  if (more && more.fill) cell.style.setProperty('--fill', more.fill)
  if (more && 'was' in more) cell.style.setProperty('--was', 'var(--c0)')
  cell.append(make('span', 'who', who), make('span', 'sign', sign))
  li.append(cell, make('span', '', says))
  return li
}

function legend() {
  const runs = boards.map(b => b.run), any = test => runs.some(run => run.frames.some(f => test(f, run)))
  const user = runs.every(run => run.course) ? 'sequence' : 'request'
  const list = [
    sample('own', '', `in use by ${user} 2, half filled`, '', '2', { fill: 50 }),
    sample('shared', '', 'shared, with two references', '', '×2', { full: '' }),
    sample('free', '', 'free', '', ''),
    sample('free', '', `free; what ${user} 2 wrote is there until it is overwritten`, '', '2', { was: '' }),
  ]
  if (any((f, run) => f.sequences.some(s => s.table.length * run.size >= s.tokens + run.size))) list.push(sample('own', '', 'reserved, nothing written', '', '2', { reserved: '', fill: 0 }))
  if (any((f, run) => run.course && f.sequences.length > 0 && f.blocks <= 64)) list.push(sample('own', '', 'a record that no append_kv has written', '', '·', { full: '' }))
  if (any(f => f.cached.length)) list.push(sample('cached', '', 'free, but a prefix hit can find it', '', ''))
  if (any(f => f.counts.length)) list.push(sample('held', '', runs.map(run => run.held).find(Boolean) || 'held, but in no table here', '', ''))
  list.push(sample('own', 'new', 'taken in this step', '+', '2', { full: '' }), sample('free', 'freed', 'freed', '−', ''), sample('shared', 'count', 'count changed', '±', '×2', { full: '' }))
  if (any(f => f.copies.length)) list.push(sample('own', 'copy', 'copied to', 'C', '2', { full: '' }))
  if (any(f => f.hits.length)) list.push(sample('own', 'hit', 'prefix hit', 'H', '2', { full: '' }))
  if (any(f => f.in.length || f.out.length)) list.push(sample('own', 'in', 'swapped in (⇤) or out (⇥)', '⇤', '2', { full: '' }))
  $('legend').replaceChildren(...list)
}

// ---- A live page asks for what comes, and stays at the last step if it is there.

const mostFrames = 2000
const rest = ms => new Promise(done => setTimeout(done, ms))
async function ask() {
  const [{ run }] = boards, places = new Map(run.named.map((key, n) => [key.join(), n]))
  const place = key => {
    if (!places.has(key.join())) {
      places.set(key.join(), run.named.length)
      run.named.push(key)
      dress(run, key)
    }
    return places.get(key.join())
  }
  let next = live.first + run.frames.length
  for (;;) {
    const following = now === end && timer === undefined
    if (run.frames.length >= mostFrames) {
      if (following) return location.reload()
      await rest(1000)
      continue
    }
    try {
      const answer = await fetch(live.source + next, { cache: 'no-store' })
      if (!answer.ok) throw new Error(answer.statusText)
      connection = ' · live'
      if (answer.status === 204) continue
      const more = await answer.json(), local = more.names.map(place)
      unpack(run, more, n => local[n], more.live.first === next)
      next = more.live.first + more.frames.length
    } catch {
      connection = ' · the server does not answer'
      await rest(1000)
    }
    const stay = now !== end || timer !== undefined
    end = run.frames.length - 1
    $('slider').max = end
    legend()
    go(stay ? now : end, true)
  }
}

$('story').replaceChildren(...scenes.map((s, n) => new Option(s.title, n)))
$('story-part').hidden = scenes.length === 1
$('app').hidden = false
enter(fromHash().scene)
only(fromHash().which)
go(fromHash().step, true)
if (live) ask()
