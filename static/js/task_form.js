// The form of a new task: shows the parameters that what is chosen has, and the size of a step.

const number = (name) => Number(document.getElementById(`id_config_${name}`)?.value);
const count = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");

function showParameters(row) {
  const select = row.querySelector("[data-row-type]");
  row.querySelector("[data-row-help]").textContent = select.selectedOptions[0]?.dataset.help ?? "";
  for (const part of row.querySelectorAll("[data-any-type]")) part.hidden = !select.value;
  for (const field of row.querySelectorAll("[data-types]")) {
    field.hidden = !field.dataset.types.split(" ").includes(select.value);
  }
  for (const part of document.querySelectorAll(`[data-for="${select.id}"]`)) {
    part.hidden = !part.dataset.forTypes.split(" ").includes(select.value);
  }
}

function estimate() {
  const trajectories = number("batch_size") * number("group_size");
  const tokens = trajectories * number("max_completion_length");
  const steps = number("max_steps");
  if (!(trajectories > 0) || !(tokens > 0) || !(steps > 0)) return;
  document.querySelector('[data-estimate="step"]').textContent = `${count(trajectories)} trajectories, at most ${count(tokens)} generated tokens`;
  document.querySelector('[data-estimate="task"]').textContent = `${count(steps)} steps, at most ${count(tokens * steps)} generated tokens`;
}

// What a column's name may be, from the dataset that is chosen.
function offerColumns() {
  const columns = document.getElementById("id_dataset")?.selectedOptions[0]?.dataset.columns ?? "[]";
  const list = document.createElement("datalist");
  list.id = "columns";
  for (const name of JSON.parse(columns)) list.append(new Option(name, name));
  document.getElementById("columns")?.remove();
  document.body.append(list);
  for (const input of document.querySelectorAll('input[name$=".target"]')) input.setAttribute("list", "columns");
}

document.getElementById("id_dataset")?.addEventListener("change", offerColumns);
offerColumns();
for (const row of document.querySelectorAll("[data-row]")) {
  row.querySelector("[data-row-type]").addEventListener("change", () => showParameters(row));
  showParameters(row);
}
if (document.querySelector("[data-estimate]")) {
  document.addEventListener("input", estimate);
  estimate();
}
