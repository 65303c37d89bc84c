// Command bench creates the same cluster in turns with Slipway and with a
// plain kubeadm script, on fresh sandbox machines each time, from the same
// bundle, and prints the medians side by side.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"slipway.dev/slipway/test/kubeadmscript"
)

const name = "bench"

// A shape is how many machines of which kind a cluster has.
type shape struct{ controlPlanes, workers int }

func (s shape) String() string { return fmt.Sprintf("%d+%d", s.controlPlanes, s.workers) }

// targetRatio returns the highest allowed ratio of Slipway's time to the script's time.
func (s shape) targetRatio() float64 {
	if s.controlPlanes > 1 {
		return 1.0
	}
	return 1.25
}

// parseShapes reads a list such as "1+2,3+2".
func parseShapes(list string) (out []shape, err error) {
	for _, text := range strings.Split(list, ",") {
		var s shape
		if n, err := fmt.Sscanf(text, "%d+%d", &s.controlPlanes,
			&s.workers); n != 2 || err != nil || s.controlPlanes < 1 || s.workers < 1 || s.String() != text {
			return nil, fmt.Errorf("invalid shape %q: write control planes + workers, such as 3+2", text)
		}
		out = append(out, s)
	}
	return out, nil
}

func main() {
	rounds := flag.Int("n", 5, "rounds; the median of each figure is printed")
	version := flag.String("kubernetes", "v1.37.1", "Kubernetes `version`")
	list := flag.String("shapes", "1+2,3+2", "the clusters to create, each as control planes + workers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	which, err := parseShapes(*list)
	if err == nil {
		err = runBenchmark(ctx, *rounds, *version, which)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// figures holds the measured values, one for each round.
type figures struct {
	slipway, kubeadm, again []time.Duration
	peak                    []int64 // bytes
}

func runBenchmark(ctx context.Context, rounds int, version string, which []shape) error {
	home, err := os.MkdirTemp("", "slipway-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	b := bench{home: home}
	content, err := b.unpackBundle(ctx, version)
	if err != nil {
		return fmt.Errorf("taking the bundle apart: %w", err)
	}
	for _, s := range which {
		b.shape = s
		f, err := b.runRounds(ctx, rounds, content)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		f.printFigures(version, s)
	}
	return nil
}

// runRounds creates the cluster in turns by Slipway and by the script.
func (b bench) runRounds(ctx context.Context, n int, content string) (f figures, err error) {
	for round := range n {
		if err := b.roundSlipway(ctx, &f); err != nil {
			return f, fmt.Errorf("round %d with slipway: %w", round+1, err)
		}
		if err := b.roundKubeadm(ctx, content, &f); err != nil {
			return f, fmt.Errorf("round %d with kubeadm: %w", round+1, err)
		}
		fmt.Printf("%s, round %d: slipway %s, kubeadm %s, again %s, peak %d MiB\n", b.shape, round+1,
			formatSeconds(f.slipway[round]), formatSeconds(f.kubeadm[round]), formatSeconds(f.again[round]), f.peak[round]>>20)
	}
	return f, nil
}

func (f figures) printFigures(version string, s shape) {
	slipway, kubeadm := medianOf(f.slipway), medianOf(f.kubeadm)
	fmt.Printf("\nKubernetes %s, control planes + workers: %s, cold hosts, median of %d\n", version, s, len(f.slipway))
	fmt.Printf("  %-34s %10s\n", "create, slipway", formatSeconds(slipway))
	fmt.Printf("  %-34s %10s\n", "create, kubeadm script", formatSeconds(kubeadm))
	fmt.Printf("  %-34s %10.2f  (target: at most %.2f)\n", "ratio", slipway.Seconds()/kubeadm.Seconds(), s.targetRatio())
	fmt.Printf("  %-34s %10s  (target: at most 2 s)\n", "apply again, nothing changed", formatSeconds(medianOf(f.again)))
	fmt.Printf("  %-34s %6d MiB  (target: at most 200 MB)\n\n", "peak memory of slipway", medianOf(f.peak)>>20)
}

// A bench runs programs with a separate Slipway state.
type bench struct {
	home  string
	shape shape
}

// roundSlipway measures a create and an unchanged apply.
func (b bench) roundSlipway(ctx context.Context, f *figures) error {
	file, err := b.createMachines(ctx)
	if err != nil {
		return err
	}
	defer b.removeMachines()
	create, peak, err := b.runSlipway(ctx, "create", "cluster", "-f", file, "--yes")
	if err != nil {
		return err
	}
	again, peakAgain, err := b.runSlipway(ctx, "apply", "-f", file, "--yes")
	if err != nil {
		return err
	}
	f.slipway, f.again, f.peak = append(f.slipway, create), append(f.again, again), append(f.peak, max(peak, peakAgain))
	return nil
}

// roundKubeadm measures the script.
func (b bench) roundKubeadm(ctx context.Context, content string, f *figures) error {
	file, err := b.createMachines(ctx)
	if err != nil {
		return err
	}
	defer b.removeMachines()
	args, err := kubeadmscript.Args(file, content, b.shape.controlPlanes)
	if err != nil {
		return err
	}
	took, _, err := b.runTimed(exec.CommandContext(ctx, "test/kubeadmscript/kubeadm.sh", args...))
	if err != nil {
		return err
	}
	f.kubeadm = append(f.kubeadm, took)
	return nil
}

// unpackBundle returns a directory with what the script wants. None of this is measured.
func (b bench) unpackBundle(ctx context.Context, version string) (string, error) {
	layout, dir := filepath.Join(b.home, "bundle")+"/", filepath.Join(b.home, "content")
	if _, _, err := b.runSlipway(ctx, "bundle", "build", "--kubernetes", version, "--out", layout); err != nil {
		return "", err
	}
	list, err := exec.CommandContext(ctx, "bin/slipway", "bundle", "inspect", layout, "-o", "json").Output()
	if err == nil {
		err = kubeadmscript.Unpack(layout, list, dir)
	}
	return dir, err
}

// createMachines makes fresh ones and answers their cluster file.
func (b bench) createMachines(ctx context.Context) (string, error) {
	file := filepath.Join(b.home, name+".yaml")
	os.Remove(file) // an existing file is never overwritten
	_, _, err := b.runSlipway(ctx, "sandbox", "create", name, "--machines", strconv.Itoa(b.shape.controlPlanes+b.shape.workers),
		"--control-planes", strconv.Itoa(b.shape.controlPlanes), "--out", file)
	return file, err
}

// removeMachines deletes the machines, even after an interrupt, and what Slipway
// remembers of a cluster on them.
func (b bench) removeMachines() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if _, _, err := b.runSlipway(ctx, "sandbox", "delete", name, "--yes"); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.RemoveAll(filepath.Join(b.home, "slipway", "clusters"))
}

func (b bench) runSlipway(ctx context.Context, args ...string) (time.Duration, int64, error) {
	return b.runTimed(exec.CommandContext(ctx, "bin/slipway", args...))
}

// runTimed returns the running time of a program and its highest memory use.
func (b bench) runTimed(cmd *exec.Cmd) (time.Duration, int64, error) {
	cmd.Env = append(os.Environ(), "HOME="+b.home, "SLIPWAY_HOME="+filepath.Join(b.home, "slipway"))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out.String())
	}
	took := time.Since(start)
	var peak int64
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		peak = usage.Maxrss * 1024
	}
	return took, peak, nil
}

func medianOf[T time.Duration | int64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func formatSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
