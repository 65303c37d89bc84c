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

// TimerJob is a job that a host runs automatically with a systemd timer. Each job has
// its own copy of the helper, because each is added and removed with its own setting.
type TimerJob struct {
	// Name is the name of the units NAME.timer and NAME.service. The module has the
	// template of the service.
	Name string
	// Title is the description of the timer.
	Title string
	// Program is the path of the helper, and JobFile the path of its job description.
	Program, JobFile string
}

// TimerSchedule configures the timer: First is the delay after the start of the host,
// Every the delay after the end of a run, and Spread the maximum random delay between
// hosts. Fractions of seconds are ignored.
type TimerSchedule struct{ First, Every, Spread time.Duration }

// TimerUnit returns the wanted state of the timer.
func (t TimerJob) TimerUnit() op.Unit {
	timer := t.Name + ".timer"
	return op.Unit{Name: timer, Enabled: op.Bool(true), Running: op.Bool(true), RestartOn: []string{unitDir + timer}}
}

// InstallOps returns the operations that install the job on a host.
func (t TimerJob) InstallOps(templates fs.FS, job []byte, at TimerSchedule) (op.List, error) {
	name := t.Name + ".service"
	service, err := RenderTemplate(templates, name, map[string]string{"Program": t.Program, "Job": t.JobFile})
	if err != nil {
		return nil, err
	}
	seconds := func(d time.Duration) int64 { return max(int64(d/time.Second), 1) }
	timer, err := RenderTemplate(files, "timed.timer", map[string]any{
		"Title": t.Title, "First": seconds(at.First), "Every": seconds(at.Every), "Spread": seconds(at.Spread),
	})
	if err != nil {
		return nil, err
	}
	unit := t.TimerUnit()
	return op.List{
		op.InstallHelper{Path: t.Program},
		op.File{Path: t.JobFile, Content: append(job, '\n'), Mode: 0o600},
		op.File{Path: unitDir + name, Content: service},
		op.File{Path: unitDir + unit.Name, Content: timer},
		op.Unit{Name: name}, // systemd reloads it, and it is stopped before its files are removed
		unit,
	}, nil
}
