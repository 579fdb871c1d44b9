// The page begins: its parts are filled and listened to.

function listen() {
  const on = (id, act, kind = "click") => find(id).addEventListener(kind, act);
  on("cannot-tell", () => answer(AMBIGUOUS));
  on("skip", () => answer(SKIP));
  on("previous", () => go(current - 1));
  on("next", () => go(current + 1));
  on("undo", undo);
  on("last-undo", () => go(last));
  on("export", exportCsv);
  on("done-export", exportCsv);
  on("done-back", () => go(answers.count() < data.slots ? firstOpen() : data.slots - 1));
  on("help", () => find("help-dialog").showModal());
  on("note", () => answers.writeNote(current, find("note").value), "input");
  listenToImport("answers", importCsv);
  listenToExported();
  document.addEventListener("keydown", onKey);
  answers.warnBeforeLeaving();
}

const NOT_KEPT = "This browser does not keep answers for this page: export them before you close it.";

function begin() {
  document.title = `${data.title} · verify labels`;
  find("title").textContent = data.title;
  showFacts(data.facts);
  find("search-box").classList.toggle("alone", !choices.keyed);
  rememberKeys();
  listen();
  answers.kept.refused = () => say(NOT_KEPT);
  go(firstOpen(), { focus: false });
  const before = answers.count();
  if (before) say(`${countText(before, "answer", "answers")} from an earlier visit still here.`);
  else if (!answers.kept.works) say(NOT_KEPT);
}

begin();

window.review = Object.freeze({ csv: () => answers.csv(), guard, unguard, parseCsv });
