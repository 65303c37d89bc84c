//go:build e2e

package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// maxRSS is the most memory a finished program had, in bytes.
func maxRSS(p *os.ProcessState) int64 {
	usage, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return usage.Maxrss * 1024 // Linux counts in KiB
}

// requireConfined checks the process of a service: its user, that it has no capabilities
// of root and cannot get any, and that it cannot write to the system.
func (u *user) requireConfined(t *testing.T, machine, unit, account string) {
	t.Helper()
	word := func(argv ...string) string { return strings.TrimSpace(u.mustExec(t, machine, argv...)) }
	pid, id := word("systemctl", "show", "--property=MainPID", "--value", unit), word("id", "-u", account)
	none := strings.Repeat("0", 16)
	want := map[string]string{
		"Uid": strings.Join([]string{id, id, id, id}, " "), "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2",
	}
	for line := range strings.Lines(word("cat", "/proc/"+pid+"/status")) {
		name, value, _ := strings.Cut(line, ":")
		if wanted, ok := want[name]; ok && strings.Join(strings.Fields(value), " ") != wanted {
			t.Errorf("%s on %s has %s, want %s", unit, machine, strings.TrimSpace(line), wanted)
		}
	}
	for line := range strings.Lines(word("cat", "/proc/"+pid+"/mountinfo")) {
		if f := strings.Fields(line); f[4] == "/" && !strings.HasPrefix(f[5], "ro") {
			t.Errorf("%s on %s can write to the system: %s", unit, machine, line)
		}
	}
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
