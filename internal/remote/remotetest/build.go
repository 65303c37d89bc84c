package remotetest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"slipway.dev/slipway/internal/node/embedded"
)

// BuildHelper builds the real node helper for this machine.
func BuildHelper(t testing.TB) func(arch string) (embedded.Helper, error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "slipway-node")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
		"-o", out, "slipway.dev/slipway/cmd/slipway-node")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the node helper: %v\n%s", err, said)
	}
	program, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := embedded.Pack(program)
	if err != nil {
		t.Fatal(err)
	}
	return func(arch string) (embedded.Helper, error) {
		if arch != runtime.GOARCH {
			return embedded.Helper{}, fmt.Errorf("built for %s, not %s", runtime.GOARCH, arch)
		}
		return embedded.ParseHelper(arch, io.NewSectionReader(bytes.NewReader(packed), 0, int64(len(packed))))
	}
}
