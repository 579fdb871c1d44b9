// Files that the page writes and reads, and the command that uses what it wrote.

function download(name, text) {
  const link = make("a");
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// `read` is given the text and returns what was taken and, for each reason, how many lines were not
function listenToImport(what, read) {
  find("import").addEventListener("click", () => find("import-file").click());
  find("import-file").addEventListener("change", async () => {
    const [file] = find("import-file").files;
    if (!file) return;
    try {
      const { taken, refused } = read(await file.text());
      const left = [...refused].map(([reason, number]) => `${whole(number)} ${reason}`);
      say(`Imported ${whole(taken)} ${what}${left.length ? `; left out: ${left.join(", ")}` : ""}`);
    } catch (error) {
      say(`${file.name} cannot be imported: ${error.message}`);
    }
    find("import-file").value = "";
  });
}

// what was exported, and the command that goes on from there
function showExported(text, command) {
  say(text);
  if (!command) return;
  find("exported-text").textContent = text;
  find("command").textContent = command;
  find("copied").textContent = "";
  find("exported").showModal();
}

function listenToExported() {
  find("copy").addEventListener("click", async () => {
    getSelection().selectAllChildren(find("command"));
    try {
      await navigator.clipboard.writeText(find("command").textContent);
      find("copied").textContent = "Copied.";
    } catch {
      find("copied").textContent = document.execCommand("copy") ? "Copied." : "Marked: copy it by Ctrl+C.";
    }
  });
}
