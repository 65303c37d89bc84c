package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseShapes_RefusesInvalidShapes(t *testing.T) {
	for text, want := range map[string][]shape{
		"1+2": {{1, 2}}, "1+2,3+2": {{1, 2}, {3, 2}}, "": nil, "3": nil, "0+2": nil, "1+0": nil, "1+2,": nil, "1+2x": nil, " 1+2": nil,
	} {
		got, err := parseShapes(text)
		if (err == nil) != (want != nil) {
			t.Errorf("shapes(%q): error %v", text, err)
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(shape{})); d != "" {
			t.Errorf("shapes(%q) (-want +got):\n%s", text, d)
		}
	}
}
