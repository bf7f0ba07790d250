// The order of the blocks of a large pool: by number, by request, or by age.

// A group is a name and blocks in the order in which they are drawn.
const groupsBy = { request: groupsByRequest, age: groupsByAge }

// groupsByRequest puts the blocks of each request together, in logical order. Blocks of
// several requests come first, those of no request last.
function groupsByRequest(run, pool) {
  const shared = [], by = new Map()
  pool.forEach((block, id) => {
    const requests = new Set(block.owners.map(([s]) => run.named[s.name][0]))
    if (requests.size > 1) shared.push(id)
    if (requests.size !== 1) return
    const [request] = requests, [s, at] = block.owners[0]
    if (!by.has(request)) by.set(request, [])
    by.get(request).push([run.named[s.name][1], at, id])
  })
  const list = shared.length ? [['shared', shared]] : []
  for (const request of [...by.keys()].sort((x, y) => x - y)) {
    const ids = by.get(request).sort((x, y) => x[0] - y[0] || x[1] - y[1]).map(x => x[2])
    list.push([`${owner(run)} ${request}`, ids])
  }
  return [...list, ...unowned(pool)]
}

// ages are the groups of blocks by the number of steps since they were taken: below each.
const ages = [[1, 'taken in this step'], [10, '1 to 9 steps ago'], [100, '10 to 99 steps ago'], [Infinity, '100 steps ago or more']]

function groupsByAge(run, pool, past, i) {
  const by = new Map(ages.map(([, name]) => [name, []])), oldest = []
  const used = [...pool.keys()].filter(id => pool[id].owners.length).sort((x, y) => past.since[y] - past.since[x] || x - y)
  for (const id of used) {
    if (run.frames[past.since[id]].before < 0) oldest.push(id)
    else by.get(ages.find(([below]) => i - past.since[id] < below)[1]).push(id)
  }
  const list = [...by, ['before the recording', oldest]].filter(([, ids]) => ids.length)
  return [...list, ...unowned(pool)]
}

// unowned are the groups of the blocks that no table names.
function unowned(pool) {
  const list = []
  for (const [state, name] of [['held', 'held'], ['cached', 'free, cached'], ['free', 'free']]) {
    const ids = [...pool.keys()].filter(id => pool[id].state === state)
    if (ids.length) list.push([name, ids])
  }
  return list
}

// arrange puts the cells into their order, where it has changed.
function arrange(b, i, pool, past) {
  if (b.order === 'number' && b.ordered === undefined) return
  for (const device of [0, 1]) {
    const grid = b.grids[device], cells = b.cells[device]
    grid.classList.toggle('grouped', b.order !== 'number')
    if (b.order === 'number') {
      grid.replaceChildren(...cells)
      continue
    }
    const was = b.ordered && b.ordered[device]
    const groups = groupsBy[b.order](b.run, pool[device], past[device], i)
    const elements = groups.map(([name, ids]) => {
      const key = name + ':' + ids.join(), same = was && was.get(name)
      if (same && same.key === key) return same
      const element = same ? same.element : make('div', 'group'), box = make('div', 'blocks')
      box.append(...ids.map(id => cells[id]))
      element.setAttribute('role', 'group')
      element.setAttribute('aria-label', `${name}: ${plural(ids.length, 'block', 'blocks')}`)
      element.dataset.group = name
      element.replaceChildren(make('span', 'group-name', name), make('small', '', ids.length), box)
      return { key, element, name }
    })
    const all = elements.map(e => e.element)
    if (all.length !== grid.children.length || all.some((e, k) => e !== grid.children[k])) grid.replaceChildren(...all)
    b.ordered = b.ordered || [undefined, undefined]
    b.ordered[device] = new Map(elements.map(e => [e.name, e]))
  }
  if (b.order === 'number') b.ordered = undefined
}
