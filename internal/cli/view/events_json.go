package view

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"sync"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/event"
)

// EventView shows an operation to programs: each event as a line of JSON, or as
// a YAML document.
type EventView struct {
	mu     sync.Mutex
	w      io.Writer // for data
	talk   io.Writer // for messages
	format Format
	closed bool
}

var _ View = (*EventView)(nil)

// NewEventView returns a view that writes events to w and other text to talk.
func NewEventView(w, talk io.Writer, f Format) *EventView {
	return &EventView{w: w, talk: talk, format: f}
}

// Emit writes an event.
func (v *EventView) Emit(e event.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	e = (&Options{}).setMissingTime(e)
	_ = WriteItem(v.w, v.format, e) // a reader that has left needs no error
}

// Write writes text that is not an event to talk.
func (v *EventView) Write(b []byte) (int, error) { return v.talk.Write(b) }

// Close ends the view.
func (v *EventView) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
}

// escapingWriter writes JSON and escapes control characters that package encoding/json
// leaves: DEL and U+0080 to U+009F, which some terminals also obey. In JSON they can
// occur only in strings.
type escapingWriter struct{ w io.Writer }

func (e escapingWriter) Write(b []byte) (int, error) {
	if _, err := e.w.Write(escapeJSONControls(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

var jsonControls = regexp.MustCompile("[\u007f-\u009f]")

func escapeJSONControls(json []byte) []byte {
	return jsonControls.ReplaceAllFunc(json, func(c []byte) []byte {
		r, _ := utf8.DecodeRune(c)
		return fmt.Appendf(nil, `\u%04x`, r)
	})
}

// toYAML encodes a value as YAML, from its JSON. YAML does not allow raw control
// characters.
func toYAML(value any) ([]byte, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(escapeJSONControls(b))
}

// WriteItem writes one value of a stream, as a line of JSON or as a YAML document.
func WriteItem(w io.Writer, f Format, value any) error {
	if f != YAML {
		return json.NewEncoder(escapingWriter{w}).Encode(value)
	}
	b, err := toYAML(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "---\n%s", b)
	return err
}

// WriteData writes a single value, as indented JSON or as YAML.
func WriteData(w io.Writer, f Format, value any) error {
	if f == YAML {
		b, err := toYAML(value)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	}
	enc := json.NewEncoder(escapingWriter{w})
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}
