// See run.
import { runAll, closeBrowser, note } from './rig.mjs';

const args = process.argv.slice(2), at = args.indexOf('--only');
const only = at >= 0 ? new RegExp(args[at + 1]) : null;
if (args.includes('--screenshots')) {
  await (await import('./screenshots.mjs')).take();
  await closeBrowser();
  process.exit(0);
}
await import('./pages.mjs');
await import('./live.mjs');
if (!args.includes('--no-scale')) await import('./scale.mjs');
const { passed, failed } = await runAll(only).finally(closeBrowser);
if (!passed && !failed) note('no test has such a name');
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed || !passed ? 1 : 0);
