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

func TestIsEarlier_ComparesReleases(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"v0.3.0", "v0.4.0", true},
		{"v0.4.0", "v0.3.0", false},
		{"v0.3.0", "v0.3.0-4-gabc1234", false},
		{"v0.3.0-4-gabc1234-dirty", "v0.3.1", true},
		{"v0.4.0-rc.1", "v0.4.0", true},
		{"devel", "v0.4.0", false},
		{"v0.4.0", "abc1234", false},
		{"", "v0.4.0", false},
	} {
		if got := IsEarlier(tc.a, tc.b); got != tc.want {
			t.Errorf("%q is earlier than %q: %t, want %t", tc.a, tc.b, got, tc.want)
		}
	}
}
