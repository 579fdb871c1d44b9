// The keyboard: keys of one letter act on the current row, wherever the focus is, unless it is where somebody types.

const moves = {
  ArrowLeft: () => -1,
  ArrowRight: () => 1,
  ArrowUp: () => (rowView.open ? 0 : -gallery.columns),
  ArrowDown: () => (rowView.open ? 0 : gallery.columns),
  Home: () => -Infinity,
  End: () => Infinity,
};
const acts = {
  k: () => decide("keep", { advance: true }),
  f: () => decide("fix", { advance: true }),
  a: () => decide("ambiguous", { advance: true }),
  s: () => decide("skip", { advance: true }),
  c: () => decide("clear"),
  l: () => currentActions()?.select.focus(),
  o: () => searchLabel({ advance: true }),
  w: writeNote,
  n: nextUndecided,
  Enter: () => !rowView.open && showRow(),
};
for (let number = 0; number < Math.min(9, data.likelyEach); number++)
  acts[number + 1] = () => decideLikely(number);
const always = { u: undo, "/": () => find("search").focus(), "?": () => find("help-dialog").showModal() };

function onKey(event) {
  const { key, target } = event;
  if (event.defaultPrevented || document.querySelector("dialog[open]:not(#row-view)")) return;
  const kind = kindOf(target);
  if (kind === "field") {
    if (key === "Escape" || (key === "Enter" && target.matches(".label-choice"))) leaveField(event);
    return;
  }
  if ((event.ctrlKey || event.metaKey) && key === "z" && !event.shiftKey) return run(event, undo);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // a key that is held down decides once
  if (key.length === 1 && (event.repeat || !find("keys-on").checked)) return;
  if (always[key]) {
    if (key === "u" || !rowView.open) run(event, always[key]);
    return;
  }
  if (kind && key.length > 1 && (key === "Enter" || !target.closest("#rows, #row-view"))) return;
  if (!acts[key] && !moves[key]) return;
  if (rowView.open && (key === "Home" || key === "End" || moves[key]?.() === 0)) return;
  // nobody decides about a row that is out of sight
  if (!rowView.open && gallery.shown.length && !gallery.isInView() && !["n", "Home", "End"].includes(key)) {
    return run(event, () => gallery.choose(gallery.firstInView(), { focus: true }));
  }
  run(event, acts[key] ?? (() => move(step(moves[key]()))));
}

function step(by) {
  const to = gallery.current + by;
  // up and down stay in their column
  return Math.abs(by) > 1 && Number.isFinite(by) && (to < 0 || to >= gallery.shown.length) ? gallery.current : to;
}

function leaveField(event) {
  if (!event.target.matches(".label-choice, #search, #row-note")) return;
  if (event.target.id === "search" && event.target.value && event.key === "Escape") return;
  event.preventDefault();
  if (rowView.open) rowView.dialog.focus();
  else if (gallery.shown.length)
    gallery.choose(gallery.isInView() ? gallery.current : gallery.firstInView(), { focus: true });
}
