package cli

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/plan"
)

// A console holds the input and the outputs of a command, and the global flags that
// determine the form of the output.
type console struct {
	Streams
	env Env

	output   string // the value of -o
	format   view.Format
	yes      bool
	debug    bool
	noColour bool
	logs     *logWriter
}

// A logWriter is the destination of logs: stderr, or the view that is using stderr.
type logWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *logWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// redirect sends logs to w until the returned function is called.
func (l *logWriter) redirect(w io.Writer) (back func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.w
	l.w = w
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.w = before
	}
}

// errStyle returns the style of stderr.
func (c *console) errStyle() view.Style {
	s := view.ReadStyle(c.env.Getenv)
	s.Colour = s.Colour && !c.noColour && c.Size != nil
	return s
}

// outStyle returns the style of stdout.
func (c *console) outStyle() view.Style {
	s := view.ReadStyle(c.env.Getenv)
	s.Colour = s.Colour && !c.noColour && c.OutIsTerminal
	return s
}

// printMessage prints a message to stderr.
func (c *console) printMessage(format string, args ...any) {
	fmt.Fprintln(c.Err, c.errStyle().Text(fmt.Sprintf(format, args...)))
}

// printDiagnostics prints diagnostics to stderr.
func (c *console) printDiagnostics(list diag.List) {
	view.WriteDiagnostics(c.Err, list, c.errStyle())
}

// newDiagnosticPrinter returns a function that prints each diagnostic once, even if a
// command finds it several times.
func (c *console) newDiagnosticPrinter() func(diag.List) {
	var mu sync.Mutex
	printed := map[string]bool{}
	return func(list diag.List) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range list {
			if !printed[d.Message] {
				printed[d.Message] = true
				c.printDiagnostics(diag.List{d})
			}
		}
	}
}

// writeResult writes a result: with the function text, or as JSON or YAML. A reader that
// closes the output early does not cause an error and does not change the exit code.
func (c *console) writeResult(value any, text func(io.Writer) error) error {
	if c.format == view.Text {
		return ignoreReaderGone(text(c.outStyle().Writer(c.Out)))
	}
	return ignoreReaderGone(view.WriteData(c.Out, c.format, value))
}

// writeDocument writes a YAML document, unchanged or as JSON.
func (c *console) writeDocument(text []byte) error {
	if c.format != view.JSON {
		if c.OutIsTerminal { // a terminal
			text = []byte(view.EscapeControls(string(text)))
		}
		_, err := c.Out.Write(text)
		return ignoreReaderGone(err)
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		return fmt.Errorf("writing as JSON: %w", err)
	}
	return view.WriteData(c.Out, c.format, value)
}

func (c *console) formatAge(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return view.FormatAge(c.env.Now().Sub(t))
}

// newView returns a view of events in the format of -o.
func (c *console) newView(p *plan.Plan) view.View {
	if c.format != view.Text {
		return view.NewEventView(c.Out, c.Err, c.format)
	}
	return c.newHumanView(p)
}

// newHumanView returns a view for people, on stderr.
func (c *console) newHumanView(p *plan.Plan) view.View {
	return view.NewHumanView(c.Err, view.Options{Style: c.errStyle(), Debug: c.debug, Plan: p, Size: c.Size, Now: c.env.Now})
}

// drainQueue shows the rest of the queue. It discards all later output of a stream whose
// reader has stopped reading, so that nothing waits for that reader again.
func (c *console) drainQueue(ctx context.Context, q *view.Queue) {
	data, talk := q.Drain(ctx)
	if !data {
		c.Out = io.Discard
	}
	if !talk {
		c.Err = io.Discard
		c.logs.redirect(io.Discard)
	}
}

// readWithProgress calls read. On a terminal it shows which hosts it waits for.
func readWithProgress[T any](ctx context.Context, c *console, read func(event.Sink) (*T, error)) (*T, error) {
	var progress event.Sink
	if c.Size != nil {
		v := c.newHumanView(nil)
		defer v.Close()
		defer c.logs.redirect(v)()
		progress = v
	}
	report, err := read(progress)
	if err == nil && ctx.Err() != nil {
		return nil, &exitError{code: exitInterrupted}
	}
	return report, err
}
