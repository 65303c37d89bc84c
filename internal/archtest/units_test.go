package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnits_WaitForTheirDisks: a service that starts at boot waits for the file systems
// with its data. On a disk that is mounted late, it would otherwise not start, or
// begin without its data in the directory below the mount.
func TestUnits_WaitForTheirDisks(t *testing.T) {
	files, err := filepath.Glob("../module/*/templates/*.service")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		if !strings.Contains(text, "\n[Install]\n") {
			continue // a timer starts it
		}
		found++
		if !strings.Contains(text, "\nRequiresMountsFor=") {
			t.Errorf("%s does not wait for the disk with its data", file)
		}
		if strings.Contains(text, "\nCondition") {
			t.Errorf("%s has a condition: systemd does not try a unit again whose condition has failed", file)
		}
	}
	if found < 6 {
		t.Errorf("found %d services that start at boot; are the templates elsewhere?", found)
	}
}
