//go:build linux

package run

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
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/regular"
)

const (
	// wordsOf is how much of the end of a log is read, and mostWords how much of
	// a line is said.
	wordsOf   = 8 << 10
	mostWords = 400
)

// crashes counts how often the container of a static pod has ended since it was
// begun to be waited for. The kubelet has a log for each start of it, by number,
// in a directory for each version of its manifest.
type crashes struct {
	dir    string
	number int
}

// latest is the newest log of a static pod's container.
func (s *session) latest(manifest string) (c crashes) {
	logs := s.podLogs(manifest)
	if len(logs) == 0 {
		return c
	}
	last := logs[len(logs)-1]
	c.dir = path.Dir(last)
	c.number, _ = strconv.Atoi(strings.TrimSuffix(path.Base(last), ".log"))
	return c
}

// often says that the container has ended as often as it is waited for at most.
func (s *session) often(o op.Wait, before crashes) bool {
	if o.Crashes == 0 {
		return false
	}
	now := s.latest(o.Manifest)
	if now.dir == before.dir {
		now.number -= before.number
	}
	return now.number >= o.Crashes // the present one has not ended
}

// crashed is the failure of a container that ends whenever it is started, in its
// own words.
func (s *session) crashed(o op.Wait) error {
	name := strings.TrimSuffix(path.Base(o.Manifest), ".yaml")
	e := &op.Error{Reason: op.ReasonNotServing, Detail: s.podWords(o.Manifest)}
	e.Message = fmt.Sprintf("%s does not serve at %s: it has exited %d times", name, o.Target(), o.Crashes)
	if e.Detail != "" {
		e.Message += "; its log says: " + lastWords(e.Detail)
	}
	return e
}

// podWords are the last lines that the container of a static pod has written, as
// its manifest is now, "" if there are none.
func (s *session) podWords(manifest string) string {
	logs := s.podLogs(manifest)
	slices.Reverse(logs) // the one that has just been started has said nothing yet
	for _, file := range logs {
		if text := tail(file); text != "" {
			return text
		}
	}
	return ""
}

// podLogs are the logs of a static pod's container since its manifest was written,
// oldest first.
func (s *session) podLogs(manifest string) []string {
	written, err := os.Stat(s.path(manifest))
	if err != nil {
		return nil
	}
	name := strings.TrimSuffix(path.Base(manifest), ".yaml")
	dirs, _ := filepath.Glob(s.path("/var/log/pods/kube-system_" + name + "-*/" + name))
	var newest string
	var at int64
	for _, dir := range dirs {
		// The pod's directory: the container's changes, too, when logs of one that
		// has ended go.
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

// tail is the end of a container's log, without what the runtime puts before each
// line.
func tail(file string) string {
	f, err := regular.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > wordsOf {
		if _, err := f.Seek(-wordsOf, io.SeekEnd); err != nil {
			return ""
		}
	}
	raw, _ := bounded.ReadAll(f, wordsOf) // what can be read of it is evidence; it may grow meanwhile
	var out []string
	for line := range strings.Lines(string(raw)) {
		if _, text, ok := strings.Cut(line, " stderr "); ok {
			line = text
		} else if _, text, ok := strings.Cut(line, " stdout "); ok {
			line = text
		}
		line = strings.TrimPrefix(strings.TrimPrefix(line, "F "), "P ") // all of it, or a part
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out[max(0, len(out)-20):], "\n")
}

// lastWords is the line of a log that says most likely why a program has ended:
// the last that speaks of an error, else the last.
func lastWords(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	said := lines[len(lines)-1]
	for _, line := range slices.Backward(lines) {
		low := strings.ToLower(line)
		if strings.Contains(low, "err=") || strings.Contains(low, "error:") || strings.Contains(low, "panic:") || strings.Contains(low, "failed to") {
			said = line
			break
		}
	}
	if len(said) > mostWords {
		said = said[:mostWords] + "…"
	}
	return strings.TrimSpace(said)
}
