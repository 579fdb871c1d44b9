// The keyboard: digits and letters are labels, other signs do the rest.

const verifyActs = {
  ArrowLeft: () => go(current - 1),
  ArrowRight: () => go(current + 1),
  Backspace: undo,
  "-": () => answer(AMBIGUOUS),
  ".": () => answer(SKIP),
  "+": () => find("note").focus(),
  "/": () => search.input.focus(),
  "?": () => find("help-dialog").showModal(),
};

function onKey(event) {
  const { key, target } = event;
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (kindOf(target) === "field") {
    if (key === "Escape") leaveField(event);
    return;
  }
  if ((event.ctrlKey || event.metaKey) && key === "z" && !event.shiftKey) return run(event, undo);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // a key that is held down answers once
  if (key.length === 1 && (event.repeat || !find("keys-on").checked)) return;
  const label = atEnd() || key.length > 1 ? -1 : choices.ofKey(key);
  if (label >= 0) return run(event, () => answer(FIX + label));
  if (verifyActs[key]) run(event, verifyActs[key]);
}

// out of a field; what was typed in the search stays until the second time
function leaveField(event) {
  if (event.target.id === "search" && event.target.value) return;
  event.preventDefault();
  find("row-title").focus();
}
