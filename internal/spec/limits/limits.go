// Package limits describes the resource limits of login sessions in a cluster file.
package limits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	unlimited = "unlimited"
	openFiles = "nofile"
	processes = "nproc"
	// lowest is the smallest number of open files and of processes with which logins and
	// programs of the system work.
	lowest = 1024
	// kernelOpenFiles is the initial value of fs.nr_open in every kernel.
	kernelOpenFiles = 1 << 20
)

// Items returns the items of limits.conf(5) that a cluster file can set.
func Items() []string { return []string{"core", "memlock", openFiles, processes} }

// Split returns both parts of a limit: one value is the soft and the hard limit.
func Split(value string) (soft, hard string) {
	soft, hard, ok := strings.Cut(value, ":")
	if !ok {
		hard = soft
	}
	return soft, hard
}

// Check returns the problem of a limit and a hint; "" if there is none. A limit is rejected
// if users cannot log in with it: Slipway could not either. openFilesMax is the fs.nr_open
// of the file, 0 if it has none.
func Check(item, value string, openFilesMax uint64) (problem, hint string) {
	if openFilesMax == 0 {
		openFilesMax = kernelOpenFiles
	}
	softText, hardText := Split(value)
	soft, softOK := parse(softText)
	hard, hardOK := parse(hardText)
	switch {
	case !softOK || !hardOK:
		return strconv.Quote(value) + " is not a limit", `write a number, "unlimited", or "SOFT:HARD"`
	case soft > hard:
		return "the soft limit " + softText + " is above the hard limit " + hardText, "write the lower limit first"
	case item == openFiles && hard > openFilesMax:
		return fmt.Sprintf("%s is above %d: every login to the host would fail", item, openFilesMax),
			fmt.Sprintf("write at most %d, or a higher fs.nr_open under spec.system.sysctls", openFilesMax)
	case soft < lowest && slices.Contains([]string{openFiles, processes}, item):
		return fmt.Sprintf("%s is below %d: logins to the host could fail", item, lowest), fmt.Sprintf("write at least %d", lowest)
	}
	return "", ""
}

// parse returns a limit as a number, the highest one for "unlimited".
func parse(text string) (uint64, bool) {
	if text == unlimited {
		return 1<<64 - 1, true
	}
	n, err := strconv.ParseUint(text, 10, 63)
	return n, err == nil && text == strconv.FormatUint(n, 10)
}
