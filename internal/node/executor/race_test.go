//go:build race && linux

package executor

// everyStep is the distance of the steps at which tests kill a copy of this program. With the race detector, a copy takes
// four times as long to start, so it gets a sample.
const everyStep = 8
