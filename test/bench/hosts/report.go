//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// The targets.
const (
	targetFirst  = 50  // times as fast as Ansible
	targetAgain  = 100 // the same, when there is nothing to do
	targetCPU    = 20 * time.Millisecond
	targetMemory = 1_000_000 // bytes a host
	// slack is how much more a host may take of the time among many than
	// among few before that counts as growing faster than their number.
	slack = 1.1
)

func (f figure) name() string {
	return fmt.Sprintf("%d %s %s", f.Hosts, f.Tool, runName(f.Again))
}

// printFigure tells one figure as soon as it is known.
func (f figure) printFigure(w io.Writer) {
	if f.Over {
		fmt.Fprintf(w, "%-28s not finished after %s\n", f.name(), f.Wall.Round(time.Second))
		return
	}
	fmt.Fprintf(w, "%-28s %8.2f s, manager: %8.2f s of CPU, %5d MB, load %s", f.name(), f.Wall.Seconds(), f.CPU.Seconds(), f.Peak/1e6, f.Load)
	if f.API != nil {
		fmt.Fprintf(w, "; %.1f writes/s, server: %.2f s of CPU, %d MB", f.perSecond(), f.API.CPU.Seconds(), f.API.Peak/1e6)
	}
	fmt.Fprintln(w)
}

// printReport prints the table, the targets, and what the figures are not of.
func printReport(w io.Writer, all []figure) {
	fmt.Fprint(w,
		"\n| hosts | tool | run | wall | CPU of the manager | per host | peak memory | per host |\n|---:|---|---|---:|---:|---:|---:|---:|\n")
	for _, f := range all {
		run := runName(f.Again)
		if f.Over {
			fmt.Fprintf(w, "| %d | %s | %s | not finished after %.0f s | | | | |\n", f.Hosts, f.Tool, run, f.Wall.Seconds())
			continue
		}
		fmt.Fprintf(w, "| %d | %s | %s | %.2f s | %.2f s | %.1f ms | %d MB | %.2f MB |\n", f.Hosts, f.Tool, run,
			f.Wall.Seconds(), f.CPU.Seconds(), perHostCPU(f), f.Peak/1e6, float64(f.Peak)/1e6/float64(f.Hosts))
	}
	fmt.Fprint(w, "\n| target | measured | |\n|---|---|---|\n")
	for _, v := range listVerdicts(all) {
		v.print(w)
	}
	fmt.Fprint(w, "\nNot as on machines of their own:\n")
	for _, d := range listDifferences() {
		fmt.Fprintf(w, "- %s: %s\n", d.What, d.How)
	}
	if slices.ContainsFunc(all, func(f figure) bool { return isLean(f.Hosts) }) {
		fmt.Fprintf(w,
			"- the helper's second copy, from %d hosts on: left out, since two for each do not fit into memory; it is "+
				"sent, verified and stored once\n",
			leanFrom)
	}
}

func perHostCPU(f figure) float64 { return f.CPU.Seconds() * 1000 / float64(f.Hosts) }

// A verdict is a target held against the figures.
type verdict struct {
	target, measured string
	met              bool
}

// print prints a row of a table.
func (v verdict) print(w io.Writer) {
	word := "missed"
	if v.met {
		word = "met"
	}
	fmt.Fprintf(w, "| %s | %s | %s |\n", v.target, v.measured, word)
}

func listVerdicts(all []figure) []verdict {
	var out []verdict
	for _, again := range []bool{false, true} {
		out = append(out, ratioVerdicts(all, again)...)
	}
	for _, again := range []bool{false, true} {
		out = append(out, costVerdicts(all, again)...)
	}
	return out
}

// ratioVerdicts hold Ansible against Slipway, for each number of hosts that both were
// measured with. A run that did not finish took at least as long.
func ratioVerdicts(all []figure, again bool) (out []verdict) {
	want, run := targetFirst, "first run"
	if again {
		want, run = targetAgain, "unchanged run"
	}
	for _, a := range all {
		if isSlipway(a.Tool) || a.Again != again {
			continue
		}
		i := slices.IndexFunc(all, func(f figure) bool {
			return f.Tool == toolSlipway && f.Hosts == a.Hosts && f.Again == again && !f.Over
		})
		if i < 0 {
			continue
		}
		ratio, least := a.Wall.Seconds()/all[i].Wall.Seconds(), ""
		if a.Over {
			least = "more than "
		}
		out = append(out, verdict{
			fmt.Sprintf("%s: at least %d times as fast as %s", run, want, a.Tool),
			fmt.Sprintf("%s%.0f times, %d hosts", least, ratio, a.Hosts), ratio >= float64(want),
		})
	}
	return out
}

// costVerdicts hold what the manager itself takes, at the largest number of hosts,
// against what it may take for each.
func costVerdicts(all []figure, again bool) []verdict {
	run := "first run"
	if again {
		run = "unchanged run"
	}
	var own []figure
	for _, f := range all {
		if f.Tool == toolSlipway && f.Again == again && !f.Over {
			own = append(own, f)
		}
	}
	if len(own) < 2 {
		return nil
	}
	slices.SortFunc(own, func(a, b figure) int { return a.Hosts - b.Hosts })
	few, many := own[0], own[len(own)-1]
	memory := float64(many.Peak) / float64(many.Hosts)
	out := []verdict{
		{
			fmt.Sprintf("%s: at most %d ms of the manager's CPU a host", run, targetCPU.Milliseconds()),
			fmt.Sprintf("%.1f ms, %d hosts", perHostCPU(many), many.Hosts), perHostCPU(many) <= targetCPU.Seconds()*1000,
		},
		{
			fmt.Sprintf("%s: at most %.0f MB of the manager's memory a host", run, targetMemory/1e6),
			fmt.Sprintf("%.2f MB, %d hosts", memory/1e6, many.Hosts), memory <= targetMemory,
		},
	}
	growth := (many.Wall.Seconds() / float64(many.Hosts)) / (few.Wall.Seconds() / float64(few.Hosts))
	return append(out, verdict{
		fmt.Sprintf("%s: time grows no faster than the number of hosts", run),
		fmt.Sprintf("%.2f times as long a host among %d as among %d", growth, many.Hosts, few.Hosts), growth <= slack,
	})
}
