//go:build linux

package ledger

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/op"
)

// editFile gives a file the content that change makes of it.
func editFile(t *testing.T, path string, change func(string) string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(change(string(raw))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// isLost wants an error about a lost ledger whose message has the words.
func isLost(t *testing.T, err error, words string) {
	t.Helper()
	var oe *op.Error
	if !errors.As(err, &oe) || oe.Reason != op.IDLedgerLost || !strings.Contains(oe.Message, words) {
		t.Errorf("%v, want %s with %q", err, op.IDLedgerLost, words)
	}
}

func TestOpen_RefusesDamagedLedgers(t *testing.T) {
	line := func(n int, to string) func(string) string {
		return func(log string) string {
			lines := strings.SplitAfter(log, "\n")
			lines[n] = to
			return strings.Join(lines, "")
		}
	}
	for name, tc := range map[string]struct {
		damage func(string) string // of the log; nil removes it
		want   string
		why    string
	}{
		"missing":             {nil, "is missing", "somebody removed it"},
		"empty":               {func(string) string { return "" }, "is empty", "a file system lost its content"},
		"one cut line":        {func(log string) string { return log[:20] }, "is empty", "the first line was whole once: the marker says so"},
		"a line is cut":       {line(0, "{\"entry\":{\"se\n"), "line 1 of the ledger", "no crash cuts a line that others follow"},
		"a line is gone":      {line(1, ""), "line 2 of the ledger", "entries count up"},
		"a line says nothing": {line(1, "{}\n"), "line 2 of the ledger", "it is not skipped"},
		"an entry is gone": {
			func(log string) string { return log[strings.LastIndex(log[:len(log)-1], "\n")+1:] },
			"does not exist", "what was written is of an entry",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := openLedger(t, dir)
			for _, path := range []string{"/etc/one", "/etc/two", "/etc/three"} {
				if err := l.SavePath(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.RecordIntent("/etc/two", Absent); err != nil {
				t.Fatal(err)
			}
			if tc.damage == nil {
				if err := os.RemoveAll(filepath.Join(dir, "state", Dir)); err != nil {
					t.Fatal(err)
				}
			} else {
				editFile(t, l.logPath(), tc.damage)
			}
			_, err := Open(filepath.Join(dir, "state"), filepath.Join(dir, "root"), atomicfile.Disk{}, Owner{})
			isLost(t, err, tc.want)
			isLost(t, err, l.logPath())
		})
	}
}

// TestMarker_ExistsWhileEntriesRemain: the marker exists as long as there is something to restore. A
// ledger of a version without markers gets a marker with its next line.
func TestMarker_ExistsWhileEntriesRemain(t *testing.T) {
	dir := t.TempDir()
	marker := filepath.Join(dir, "state", Marker)
	l := openLedger(t, dir)
	if pathExists(marker) {
		t.Error("it is there before any change")
	}
	for _, path := range []string{"/etc/one", "/etc/two"} {
		if err := l.SavePath(path); err != nil {
			t.Fatal(err)
		}
		if !pathExists(marker) {
			t.Errorf("%s is saved and it is not there", path)
		}
		if err := os.Remove(marker); err != nil {
			t.Fatal(err)
		}
		l = openLedger(t, dir)
	}
	if err := l.SavePath("/etc/three"); err != nil {
		t.Fatal(err)
	}
	if err := l.RemoveLedger(); err != nil {
		t.Fatal(err)
	}
	if l = openLedger(t, dir); pathExists(marker) || !l.IsEmpty() {
		t.Error("something is left after the ledger was removed")
	}
}

// TestRestore_RefusesDamagedOriginals: a saved file whose content has changed is never restored.
func TestRestore_RefusesDamagedOriginals(t *testing.T) {
	for name, damage := range map[string]func(string) error{
		"is missing": os.Remove,
		"is damaged": func(p string) error { return os.Truncate(p, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "root/etc/x")
			putFile(t, file, "first")
			l := openLedger(t, dir)
			if err := l.SavePath("/etc/x"); err != nil {
				t.Fatal(err)
			}
			putFile(t, file, "second")
			state, err := PathState(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.RecordIntent("/etc/x", state); err != nil {
				t.Fatal(err)
			}
			object := l.objectPath("1")
			if err := damage(object); err != nil {
				t.Fatal(err)
			}
			_, err = l.RestorePath(l.FindEntry(KindPath, "/etc/x"))
			isLost(t, err, object)
			isLost(t, err, name)
			if raw, err := os.ReadFile(file); err != nil || !bytes.Equal(raw, []byte("second")) {
				t.Errorf("it was touched: %q %v", raw, err)
			}
		})
	}
}
