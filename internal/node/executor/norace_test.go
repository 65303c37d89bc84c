//go:build !race && linux

package executor

// everyStep is the distance of the steps at which tests kill a copy of this program.
const everyStep = 1
