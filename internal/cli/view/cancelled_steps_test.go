package view

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"slipway.dev/slipway/internal/event"
)

// One signal cancels all steps of a host that have not begun, while others end.
func TestViews_ShowCancelledStepsInOneLine(t *testing.T) {
	options := Options{Now: func() time.Time { return epoch }, Size: func() (int, int) { return 100, 30 }, Frames: make(chan time.Time)}
	for name, open := range map[string]func(io.Writer) View{
		"plain": func(w io.Writer) View { return NewPlain(w, options) },
		"live":  func(w io.Writer) View { return NewLive(w, options) },
	} {
		for _, steps := range []int{1, 32} {
			t.Run(fmt.Sprintf("%s, %d", name, steps), func(t *testing.T) {
				var b strings.Builder
				v := open(&b)
				v.Emit(event.Event{Type: event.OperationStarted, Time: epoch})
				for i := range steps {
					v.Emit(event.Event{
						Type: event.StepFinished, Task: fmt.Sprint("t.", i), Title: fmt.Sprint("step ", i), Host: "cp1",
						Outcome: event.Cancelled, Time: epoch,
					})
					v.Emit(event.Event{
						Type: event.StepFinished, Task: fmt.Sprint("u.", i), Title: "another", Host: "cp1", Outcome: event.Changed, Time: epoch,
					})
				}
				v.Close()
				want := "32 steps"
				if steps == 1 {
					want = "step 0"
				}
				if text := b.String(); strings.Count(text, "cancelled") != 1 || !strings.Contains(text, want) || !strings.Contains(text, "cp1") {
					t.Errorf("want one line with %q:\n%s", want, text)
				}
			})
		}
	}
}
