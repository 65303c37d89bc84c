package exact

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestText_KeepsBytesInJSON(t *testing.T) {
	for _, tt := range []struct {
		name string
		text Text
		want string
	}{
		{"plain", "/etc/hosts", `"/etc/hosts"`},
		{"nothing", "", `""`},
		{"UTF-8", "ü\uFFFD", "\"ü\uFFFD\""},
		{"like ours", `{"bytes":"/w=="}`, `"{\"bytes\":\"/w==\"}"`},
		{"Latin-1", "/etc/\xfc", `{"bytes":"L2V0Yy/8"}`},
		{"cut in the middle", "\xc3", `{"bytes":"ww=="}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw, err := json.Marshal(tt.text)
			if err != nil || string(raw) != tt.want {
				t.Fatalf("%s, %v; want %s", raw, err, tt.want)
			}
			var back Text
			if err := json.Unmarshal(raw, &back); err != nil || back != tt.text {
				t.Errorf("%q, %v", back, err)
			}
		})
	}
	for _, raw := range []string{`{}`, `{"bytes":""}`, `{"bytes":"?"}`, `3`, `[]`} {
		var text Text
		if err := json.Unmarshal([]byte(raw), &text); err == nil {
			t.Errorf("%s reads as %q", raw, text)
		}
	}
}

func TestToTexts_ConvertsBothWays(t *testing.T) {
	for _, list := range [][]string{nil, {}, {"a", "\xff"}} {
		if diff := cmp.Diff(list, ToStrings(ToTexts(list))); diff != "" {
			t.Error(diff)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("/etc/\xff")
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := json.Marshal(Text(text))
		if err != nil {
			t.Fatal(err)
		}
		var back Text
		if err := json.Unmarshal(raw, &back); err != nil || string(back) != text {
			t.Errorf("%q: %s, %q, %v", text, raw, back, err)
		}
	})
}
