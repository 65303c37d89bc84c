//go:build linux

package health

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// wordsOf is how much of the end of a log is read, and mostWords limits the printed
	// part of a line.
	wordsOf   = 8 << 10
	mostWords = 400
)

// Crashes counts how often the container of a static pod has exited since the start of
// the wait. The kubelet has a numbered log for each start, in a directory for each
// version of the manifest.
type Crashes struct {
	dir    string
	number int
}

// LatestExits returns the newest log of a static pod's container.
func LatestExits(h *host.Host, manifest string) (c Crashes) {
	logs := podLogs(h, manifest)
	if len(logs) == 0 {
		return c
	}
	last := logs[len(logs)-1]
	c.dir = path.Dir(last)
	c.number, _ = strconv.Atoi(strings.TrimSuffix(path.Base(last), ".log"))
	return c
}

// ExitedOften reports whether the container has exited as often as the wait allows.
func ExitedOften(h *host.Host, o op.Wait, before Crashes) bool {
	if o.Crashes == 0 {
		return false
	}
	now := LatestExits(h, o.Manifest)
	if now.dir == before.dir {
		now.number -= before.number
	}
	return now.number >= o.Crashes // the current one has not exited
}

// CrashError returns the error for a container that exits after each start, with its own
// last output.
func CrashError(h *host.Host, o op.Wait) error {
	name := strings.TrimSuffix(path.Base(o.Manifest), ".yaml")
	e := &op.Error{Reason: op.ReasonNotServing, Detail: LastPodOutput(h, o.Manifest)}
	e.Message = fmt.Sprintf("%s does not serve at %s: it has exited %d times", name, o.Target(), o.Crashes)
	if e.Detail != "" {
		e.Message += "; its log says: " + LastLines(e.Detail)
	}
	return e
}

// LastPodOutput returns the last lines from the container of a static pod with its current
// manifest, "" if there are none.
func LastPodOutput(h *host.Host, manifest string) string {
	logs := podLogs(h, manifest)
	slices.Reverse(logs) // the one that has just started has no output yet
	for _, file := range logs {
		if text := readLogEnd(file); text != "" {
			return text
		}
	}
	return ""
}

// podLogs returns the logs of a static pod's container since its manifest was written,
// oldest first.
func podLogs(h *host.Host, manifest string) []string {
	written, err := os.Stat(h.DiskPath(manifest))
	if err != nil {
		return nil
	}
	name := strings.TrimSuffix(path.Base(manifest), ".yaml")
	dirs, _ := filepath.Glob(h.DiskPath("/var/log/pods/kube-system_" + name + "-*/" + name))
	var newest string
	var at int64
	for _, dir := range dirs {
		// The directory of the pod: the container's directory also changes when old logs
		// are removed.
		info, err := os.Stat(path.Dir(dir))
		if err == nil && !info.ModTime().Before(written.ModTime()) && info.ModTime().UnixNano() > at {
			newest, at = dir, info.ModTime().UnixNano()
		}
	}
	if newest == "" {
		return nil
	}
	logs, _ := filepath.Glob(newest + "/*.log")
	slices.SortFunc(logs, func(a, b string) int {
		if len(a) != len(b) { // 9.log comes before 10.log
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return logs
}

// readLogEnd returns the end of a container's log, without the runtime's prefix of each
// line.
func readLogEnd(file string) string {
	f, err := bounded.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > wordsOf {
		if _, err := f.Seek(-wordsOf, io.SeekEnd); err != nil {
			return ""
		}
	}
	raw, _ := bounded.ReadAll(f, wordsOf) // the readable part is evidence; it may grow meanwhile
	var out []string
	for line := range strings.Lines(string(raw)) {
		if _, text, ok := strings.Cut(line, " stderr "); ok {
			line = text
		} else if _, text, ok := strings.Cut(line, " stdout "); ok {
			line = text
		}
		line = strings.TrimPrefix(strings.TrimPrefix(line, "F "), "P ") // a complete line, or a part
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out[max(0, len(out)-20):], "\n")
}

// LastLines returns the line of a log with the most likely reason for the exit of a
// program: the last line that mentions an error, else the last line.
func LastLines(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	said := lines[len(lines)-1]
	for _, line := range slices.Backward(lines) {
		low := strings.ToLower(line)
		if strings.Contains(low, "err=") || strings.Contains(low, "error:") || strings.Contains(low, "panic:") ||
			strings.Contains(low, "failed to") {
			said = line
			break
		}
	}
	if len(said) > mostWords {
		said = said[:mostWords] + "…"
	}
	return strings.TrimSpace(said)
}
