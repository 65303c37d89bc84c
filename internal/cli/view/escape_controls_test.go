package view

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/plan"
)

// controlText contains sequences that control a terminal: they set the clipboard and clear
// the screen, also in the eight-bit form.
const controlText = "before\x1b]52;c;Y3VybA==\x07\x1b[2J\u009b2J\u009d\x7f\r\x08\u202eafter"

// terminalControls lists the parts of it that must not be written to a terminal.
var terminalControls = []string{"\x1b]", "\x07", "\x1b[2J", "\u009b", "\u009d", "\x7f", "\x08", "\u202e"}

var everyType = []event.Type{
	event.OperationStarted, event.StepStarted, event.StepRetry, event.StepProgress, event.StepOutput, event.StepFinished, event.Note,
}

func findControls(out string) (by []string) {
	for _, s := range terminalControls {
		if strings.Contains(out, s) {
			by = append(by, s)
		}
	}
	return by
}

// fillWithControls sets every text of a value to controlText, down to a depth.
func fillWithControls(v reflect.Value, depth int) {
	if depth == 0 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(controlText)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillWithControls(v.Elem(), depth-1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillWithControls(v.Index(0), depth-1)
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return
		}
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillWithControls(key, depth-1)
		fillWithControls(value, depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			fillWithControls(v.Field(i), depth-1)
		}
	}
}

func newHostileValue[T any]() *T {
	v := new(T)
	fillWithControls(reflect.ValueOf(v).Elem(), 8)
	return v
}

// TestViews_EscapeControlsInEveryField: text from hosts, clusters and the state never
// controls the terminal.
func TestViews_EscapeControlsInEveryField(t *testing.T) {
	now := time.Unix(0, 0).UTC()
	said := newHostileValue[event.Event]()
	ending := newHostileValue[Ending]()
	for name, show := range map[string]func(io.Writer, Style) error{
		"info": func(w io.Writer, s Style) error { return WriteInfo(w, newHostileValue[inspect.Info](), now, s) },
		"certificates": func(w io.Writer, s Style) error {
			return WriteCertificates(w, newHostileValue[inspect.Certificates](), now, s)
		},
		"copies": func(w io.Writer, s Style) error {
			return WriteCopies(w, newHostileValue[inspect.CopyReport](), now, s)
		},
		"members": func(w io.Writer, s Style) error {
			return WriteEtcdMembers(w, newHostileValue[inspect.EtcdReport](), s)
		},
		"health": func(w io.Writer, s Style) error {
			return WriteEtcdHealth(w, newHostileValue[inspect.EtcdReport](), s)
		},
		"snapshot": func(w io.Writer, s Style) error {
			return WriteSnapshot(w, newHostileValue[backups.SnapshotInfo](), s)
		},
		"snapshots": func(w io.Writer, _ Style) error {
			return WriteSnapshots(w, []backups.SnapshotInfo{*newHostileValue[backups.SnapshotInfo]()}, now, false)
		},
		"schedule": func(w io.Writer, s Style) error {
			return WriteScheduled(w, newHostileValue[inspect.Scheduled](), now, s)
		},
		"drill":   func(w io.Writer, s Style) error { return WriteDrill(w, newHostileValue[backups.DrillReport](), s) },
		"a table": func(w io.Writer, _ Style) error { return WriteTable(w, nil, [][]string{{controlText}}) },
		"a line":  func(w io.Writer, _ Style) error { _, err := io.WriteString(w, controlText+"\n"); return err },
	} {
		for _, style := range []Style{{}, {Colour: true, Unicode: true}} {
			var b bytes.Buffer
			if err := show(style.Writer(&b), style); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if by := findControls(b.String()); len(by) > 0 || b.Len() == 0 {
				t.Errorf("%s: %q is in %q", name, by, b.String())
			}
		}
	}
	// These are not written through Style.Writer.
	for name, show := range map[string]func(io.Writer, Style){
		"succeeded":   func(w io.Writer, s Style) { ending.Style = s; ending.Succeeded(w) },
		"failed":      func(w io.Writer, s Style) { ending.Style = s; ending.Failed(w) },
		"paused":      func(w io.Writer, s Style) { ending.Style = s; ending.Paused(w) },
		"onward":      func(w io.Writer, s Style) { ending.Style = s; ending.Onward(w) },
		"diagnostics": func(w io.Writer, s Style) { WriteDiagnostics(w, diag.List{*newHostileValue[diag.Diagnostic]()}, s) },
		"plan":        func(w io.Writer, s Style) { _ = WritePlan(w, newHostileValue[plan.Plan](), false, s) },
		"plain": func(w io.Writer, s Style) {
			v := NewPlain(w, Options{Style: s, Debug: true})
			for _, typ := range everyType {
				said.Type = typ
				v.Emit(*said)
			}
			v.Close()
		},
		"live": func(w io.Writer, s Style) {
			v := NewLive(w, Options{Style: s, Debug: true, Size: func() (int, int) { return 200, 50 }})
			for _, typ := range everyType {
				said.Type = typ
				v.Emit(*said)
			}
			v.Close()
		},
		"hosts": func(w io.Writer, s Style) {
			p := NewPrefixedOutput([]string{"w1"}, s, true).NewWriter(w, "w1")
			_, _ = io.WriteString(p, controlText+"\r\n")
			_ = p.Close()
		},
	} {
		for _, style := range []Style{{}, {Colour: true, Unicode: true}} {
			var b bytes.Buffer
			show(&b, style)
			if by := findControls(b.String()); len(by) > 0 {
				t.Errorf("%s: %q is in %q", name, by, b.String())
			}
		}
	}
}

// TestStyle_KeepsOnlyOwnColours: only the escape sequences of Slipway's own colours are
// kept, if colours are on.
func TestStyle_KeepsOnlyOwnColours(t *testing.T) {
	ours := paint(true).in(red, "FAILED") + paint(true).in(bold, "x")
	for _, tt := range []struct {
		name, in string
		style    Style
		want     string
	}{
		{"ours", ours, Style{Colour: true, Unicode: true}, ours},
		{"without colours", paint(true).in(red, "x"), Style{Unicode: true}, `\x1b[31mx\x1b[0m`},
		{"invisible text", "\x1b[8mx\x1b[30;40m", Style{Colour: true, Unicode: true}, `\x1b[8mx\x1b[30;40m`},
		{"signs", "a…\tb\n", Style{}, "a...\tb\n"},
		{"no text", "\xff\x9b2J", Style{Unicode: true}, "��2J"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.style.Text(tt.in); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestJSON_EscapesControls: JSON and YAML contain the same text, without control
// characters.
func TestJSON_EscapesControls(t *testing.T) {
	value := map[string]string{"text": controlText + "\U000e0001 …"}
	for _, f := range []Format{JSON, YAML} {
		for name, write := range map[string]func(io.Writer, Format, any) error{"item": WriteItem, "data": WriteData} {
			var b bytes.Buffer
			if err := write(&b, f, value); err != nil {
				t.Fatal(err)
			}
			out := strings.ReplaceAll(b.String(), "\u202e", "") // steers the reader, not the terminal
			if by := findControls(out); len(by) > 0 {
				t.Errorf("%s as %s: %q is in %q", name, f, by, out)
			}
			if f == JSON {
				var back map[string]string
				if err := json.Unmarshal(b.Bytes(), &back); err != nil || back["text"] != value["text"] {
					t.Errorf("%s: %q, %v", name, back["text"], err)
				}
			}
		}
	}
}
