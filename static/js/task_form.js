// The form of a new task: shows the parameters that a reward function has, and the size of a step.

const number = (name) => Number(document.getElementById(`id_config_${name}`)?.value);
const count = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");

function showParameters(grader) {
  const select = grader.querySelector("[data-grader-type]");
  grader.querySelector("[data-grader-help]").textContent = select.selectedOptions[0]?.dataset.help ?? "";
  for (const part of grader.querySelectorAll("[data-any-type]")) part.hidden = !select.value;
  for (const field of grader.querySelectorAll("[data-types]")) {
    field.hidden = !field.dataset.types.split(" ").includes(select.value);
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

for (const grader of document.querySelectorAll("[data-grader]")) {
  grader.querySelector("[data-grader-type]").addEventListener("change", () => showParameters(grader));
  showParameters(grader);
}
if (document.querySelector("[data-estimate]")) {
  document.addEventListener("input", estimate);
  estimate();
}
