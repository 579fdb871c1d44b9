// Asking about one row after the other, and going back.

const data = takeVerification();
const answers = new Answers(data);
const pictures = data.pictures && new Pictures(data.pictures);
let current = 0;
let last; // the slot that was answered last
// where fingers point, a box that takes the focus opens a keyboard over the page
const typing = !matchMedia("(pointer: coarse), (max-width: 699px)").matches;

function takeVerification() {
  const found = JSON.parse(take("about"));
  const ids = JSON.parse(take("ids"));
  return {
    ...found,
    ids,
    slots: ids.length,
    places: Uint32Array.from(ids.keys()),
    given: takeLabels("given", found.labelBytes),
    chances: takeArray("chances", Float64Array),
    records: JSON.parse(take("records") || "[]"),
  };
}

const choices = new Choices(find("choices"), { answers, choose: label => answer(FIX + label) });
const search = new LabelSearch(find("search"), find("search-options"), {
  names: () => answers.labels,
  choose: name => answer(FIX + answers.labelled(name)),
});

const atEnd = () => current >= data.slots;

function answer(code) {
  if (atEnd()) return;
  const slot = current;
  answers.set([slot], [code], `row ${slot + 1}`);
  last = slot;
  go(nextOpen(slot));
  // what is shown of the row that was answered is said, too
  const { said, given } = outcome(slot);
  find("told-last").textContent = `Row ${slot + 1}: ${said}${given ? `; ${given}` : ""}.`;
}

// the next row without an answer, and behind the last one those that were left open before it
function nextOpen(from) {
  for (let step = 1; step <= data.slots; step++) {
    const slot = (from + step) % data.slots;
    if (!answers.codes[slot]) return slot;
  }
  return data.slots;
}

function go(slot, { focus = true } = {}) {
  current = Math.max(0, Math.min(slot, data.slots));
  show();
  if (!focus) return;
  const target = atEnd() ? find("done-title") : choices.keyed || !typing ? find("row-title") : search.input;
  target.focus({ preventScroll: true });
  scrollTo({ top: 0, behavior: "instant" });
}

function show() {
  const end = atEnd();
  find("question").hidden = find("answer").hidden = end;
  find("done").hidden = !end;
  showProgress();
  showOutcome(find("last"), last !== undefined && last !== current ? last : undefined);
  find("last-box").hidden = find("last").hidden;
  if (end) return showDone();
  find("row-title").textContent = `Row ${whole(current + 1)} of ${whole(data.slots)}`;
  showPicture(current);
  showRecord(current);
  showOutcome(find("outcome"), current);
  choices.show(current);
  for (const [id, code] of [
    ["cannot-tell", AMBIGUOUS],
    ["skip", SKIP],
  ])
    find(id).setAttribute("aria-pressed", String(answers.codes[current] === code));
  find("note").value = answers.note(current);
  find("previous").disabled = current === 0;
}

function showProgress() {
  const said = answers.count();
  find("progress").max = Math.max(1, data.slots);
  find("progress").value = said;
  find("progress-text").textContent = `${whole(said)} of ${whole(data.slots)}`;
  find("undo").disabled = !answers.past.length;
  find("export").disabled = !answers.answered;
  find("export").textContent = answers.answered ? `Export CSV (${whole(answers.answered)})` : "Export CSV";
}

// how many agree is said at the end alone: it would sway whoever answers
function showDone() {
  const { answered } = answers;
  const agree = answers.codes.reduce((count, code, slot) => count + (code >= FIX && answers.agrees(slot)), 0);
  const left = [
    [AMBIGUOUS, "without an answer that can be told"],
    [SKIP, "skipped"],
  ]
    .map(([code, text]) => [answers.codes.reduce((count, one) => count + (one === code), 0), text])
    .filter(([count]) => count)
    .map(([count, text]) => `${whole(count)} ${text}`);
  const open = data.slots - answers.count();
  find("done-title").textContent = open ? `${rowsText(open)} still open` : "Every row is done.";
  const parts = [`${rowsText(answered)} answered, ${whole(agree)} of them as they were given`];
  if (left.length) parts.push(left.join(", "));
  find("done-text").textContent = data.slots ? `${parts.join("; ")}.` : "There are no rows to verify.";
  find("done-export").disabled = !answered;
}

function undo() {
  const undone = answers.undo();
  if (!undone) return;
  last = undefined;
  find("told-last").textContent = "";
  go(undone.slots[0]);
  say(`Undone: ${undone.text}`);
}

function exportCsv() {
  download(data.export, answers.csv());
  answers.exported = true;
  answers.save();
  showExported(
    `Exported ${countText(answers.answered, "answer", "answers")} to ${data.export}`,
    data.command,
  );
}

function importCsv(text) {
  const found = answers.read(text);
  last = undefined;
  go(firstOpen(), { focus: false });
  return found;
}

const firstOpen = () => nextOpen(-1);
