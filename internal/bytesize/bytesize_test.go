package bytesize_test

import (
	"testing"

	"slipway.dev/slipway/internal/bytesize"
)

func TestFormat_RoundsDown(t *testing.T) {
	tests := map[string]struct {
		n    int64
		want string
	}{
		"none":                  {0, "0 B"},
		"few":                   {1023, "1023 B"},
		"one unit":              {1 << 10, "1 KiB"},
		"a digit":               {1536, "1.5 KiB"},
		"more than a digit":     {327_700_000, "312.5 MiB"},
		"less than one":         {1<<30 - 1, "1023.9 MiB"},
		"less than a round one": {21_000_000_000, "19.5 GiB"},
		"a round one":           {20 << 30, "20 GiB"},
		"a disk":                {2_000_000_000_000, "1.8 TiB"},
		"more than there is":    {1 << 60, "1048576 TiB"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := bytesize.Format(tt.n); got != tt.want {
				t.Errorf("%d is %q, want %q", tt.n, got, tt.want)
			}
		})
	}
}
