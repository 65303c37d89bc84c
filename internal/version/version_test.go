package version

import (
	"runtime"
	"testing"
)

func TestGet_ReportsDevelWithoutLinkerFlags(t *testing.T) {
	got := Get()
	if got.Version != "devel" {
		t.Errorf("version of a test binary: got %q, want devel", got.Version)
	}
	if got.Go != runtime.Version() || got.OS != runtime.GOOS || got.Arch != runtime.GOARCH {
		t.Errorf("Get() = %+v does not describe this program", got)
	}
}
