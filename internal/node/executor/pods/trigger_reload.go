//go:build linux

package pods

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// TriggerReloadOp executes op.TriggerReload.
type TriggerReloadOp struct{ Op op.TriggerReload }

func (x *TriggerReloadOp) Paths() []string {
	return []string{x.Op.Manifest, x.Op.File}
}

func (x *TriggerReloadOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	old, _, _, err := outdatedPrograms(h, op.StaticPodRestart{Manifest: o.Manifest, Files: []string{o.File}})
	if err != nil || len(old) == 0 {
		return host.CheckResult{}, err
	}
	return host.CheckResult{Change: "wait until the component has loaded the new certificate"}, nil
}

// Apply touches the file until its program has read it twice since the first check:
// at most one of them was already running then. After a restart of the program the count
// starts again.
func (x *TriggerReloadOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	bounded, cancel := context.WithTimeout(ctx, time.Duration(o.TimeoutSeconds)*time.Second)
	defer cancel()
	tick := time.NewTicker(health.ProbeEvery)
	defer tick.Stop()
	first := -1
	var why error
	for {
		n, err := countReadings(bounded, h, o)
		switch {
		case err != nil:
			if bounded.Err() == nil || why == nil { // else it only reports that time is up
				why = err
			}
		case first < 0 || n < first:
			first = n
		case n >= first+2:
			return nil
		default:
			why = fmt.Errorf("it was read %d times since then", n-first)
		}
		if err := touchFile(h, o.File); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-bounded.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &op.Error{
				Reason:  "Timeout",
				Message: fmt.Sprintf("no confirmation within %ds that the current %s was read: %v", o.TimeoutSeconds, o.File, why),
			}
		}
	}
}

// touchFile triggers the watchers of a file: it sets its mode to the current mode.
func touchFile(h *host.Host, file string) error {
	info, err := os.Stat(h.DiskPath(file))
	if err != nil {
		return err
	}
	return os.Chmod(h.DiskPath(file), info.Mode().Perm())
}

// countReadings returns how often the program has read the file without an error since its
// start: each failed reading is retried.
func countReadings(ctx context.Context, h *host.Host, o op.TriggerReload) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, health.ProgramTimeout)
	defer cancel()
	text, err := h.Output(ctx, o.Metrics...)
	if err != nil {
		return 0, err
	}
	all, told := findMetric(text, "workqueue_work_duration_seconds_count", o.Queue)
	if !told {
		return 0, fmt.Errorf("its metrics have no queue %s", o.Queue)
	}
	failed, _ := findMetric(text, "workqueue_retries_total", o.Queue)
	return all - failed, nil
}

// findMetric returns the metric of a queue from a program's metrics, if they have it.
func findMetric(text, name, queue string) (int, bool) {
	_, after, found := strings.Cut("\n"+text, "\n"+name+`{name="`+queue+`"} `)
	if !found {
		return 0, false
	}
	value, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseFloat(strings.TrimSpace(value), 64) // large ones have an exponent
	return int(n), err == nil
}
