'use strict'
const table = document.querySelector('#table'), body = table.tBodies[0], rows = [...body.rows]
const search = document.querySelector('#search'), show = document.querySelector('#show'), count = document.querySelector('#count')
document.querySelector('#tools').hidden = false

// Cells have their number in data-v where it is not what they show.
const value = (row, i) => { const c = row.cells[i], v = c.dataset.v ?? c.textContent.trim(); return v === '' || isNaN(v) ? v.toLowerCase() : Number(v) }
const compare = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === 'number' ? 1 : -1

const sort = (i, down) => {
  rows.sort((a, b) => (down ? -1 : 1) * compare(value(a, i), value(b, i)))
  body.append(...rows)
  ;[...table.tHead.rows[0].cells].forEach((c, j) => j === i ? c.setAttribute('aria-sort', down ? 'descending' : 'ascending') : c.removeAttribute('aria-sort'))
}
;[...table.tHead.rows[0].cells].forEach((cell, i) => {
  const button = document.createElement('button')
  button.type = 'button'
  button.append(...cell.childNodes)
  cell.append(button)
  button.addEventListener('click', () => {
    const now = cell.getAttribute('aria-sort')
    sort(i, now === 'ascending')
  })
})

const filter = () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean)
  let n = 0
  for (const row of rows) {
    const text = row.textContent.toLowerCase()
    row.hidden = !words.every(w => text.includes(w)) || (show.value !== '' && !row.dataset.is.split(' ').includes(show.value))
    n += !row.hidden
  }
  count.textContent = n === rows.length ? '' : `${n} of ${rows.length} students`
}
search.addEventListener('input', filter)
show.addEventListener('change', filter)
