package module

import (
	"embed"
	"io/fs"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

//go:embed templates
var files embed.FS

const unitDir = "/etc/systemd/system/"

// Timed is what a host does by itself, by a timer of systemd's: with a helper that
// it keeps for that alone, because each of them comes and goes with a setting of
// its own.
type Timed struct {
	// Name is that of the units: NAME.timer and NAME.service, of which the module
	// has the template.
	Name string
	// Title is what the timer says of itself.
	Title string
	// Program is the helper, and JobFile what it is to do.
	Program, JobFile string
}

// TimedAt is how long after the host's start it begins, how long after its end it
// begins again, and how far apart hosts are at most. Parts of seconds do not count.
type TimedAt struct{ First, Every, Spread time.Duration }

// Unit is the timer, as it is to run.
func (t Timed) Unit() op.Unit {
	timer := t.Name + ".timer"
	return op.Unit{Name: timer, Enabled: op.Bool(true), Running: op.Bool(true), RestartOn: []string{unitDir + timer}}
}

// Ops have a host do a job by itself.
func (t Timed) Ops(templates fs.FS, job []byte, at TimedAt) (op.List, error) {
	name := t.Name + ".service"
	service, err := Render(templates, name, map[string]string{"Program": t.Program, "Job": t.JobFile})
	if err != nil {
		return nil, err
	}
	seconds := func(d time.Duration) int64 { return max(int64(d/time.Second), 1) }
	timer, err := Render(files, "timed.timer", map[string]any{
		"Title": t.Title, "First": seconds(at.First), "Every": seconds(at.Every), "Spread": seconds(at.Spread),
	})
	if err != nil {
		return nil, err
	}
	unit := t.Unit()
	return op.List{
		op.Self{Path: t.Program},
		op.File{Path: t.JobFile, Content: append(job, '\n'), Mode: 0o600},
		op.File{Path: unitDir + name, Content: service},
		op.File{Path: unitDir + unit.Name, Content: timer},
		op.Unit{Name: name}, // so that systemd reads it again
		unit,
	}, nil
}
