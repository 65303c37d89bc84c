//go:build linux

package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/executor/systemd"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// SwapOffOp executes op.SwapOff.
type SwapOffOp struct{ Op op.SwapOff }

func (*SwapOffOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	return checkSwap(ctx, h)
}

func (*SwapOffOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	return applySwap(ctx, h)
}

const (
	// Fstab is the file with the file systems and swap areas that systemd starts.
	Fstab = "/etc/fstab"
	// SwapMark marks the lines of fstab that Slipway disabled.
	SwapMark = "#slipway-swap-off# "
)

// swapMakers are services that create swap at boot, on compressed memory or files,
// without a line in fstab and a unit of type swap.
var swapMakers = []string{"zramswap.service", "zram-config.service", "zram-swap.service", "dphys-swapfile.service"}

// swapArea is one line of /proc/swaps.
type swapArea struct {
	Device   string `json:"device"`
	Priority int    `json:"priority"`
}

// ParseSwaps reads /proc/swaps.
func ParseSwaps(raw []byte) []swapArea {
	var out []swapArea
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] == "Filename" {
			continue
		}
		priority, err := strconv.Atoi(f[4])
		if err != nil {
			continue
		}
		out = append(out, swapArea{Device: UnescapeProc(f[0]), Priority: priority})
	}
	return out
}

// UnescapeProc decodes the kernel's octal escape of spaces in paths.
func UnescapeProc(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// WithoutSwap comments out the swap lines of an fstab, or restores them.
func WithoutSwap(raw []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) >= 3 && f[0][0] != '#' && f[2] == "swap" {
			out.WriteString(SwapMark)
		}
		out.WriteString(line)
	}
	return out.Bytes()
}

// WithSwap restores the lines of swap in an fstab.
func WithSwap(raw []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(raw)) {
		out.WriteString(strings.TrimPrefix(line, SwapMark))
	}
	return out.Bytes()
}

// swapState has everything that creates swap on this host.
type swapState struct {
	active []swapArea
	fstab  []byte
	off    []byte // fstab without swap lines
	units  []string
	makers []string
}

func readSwapState(ctx context.Context, h *host.Host) (swapState, error) {
	var st swapState
	raw, err := bounded.ReadFile(h.DiskPath("/proc/swaps"), bounded.Proc)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without swap
		return st, fmt.Errorf("reading the active swap: %w", err)
	}
	st.active = ParseSwaps(raw)
	if st.fstab, err = h.ReadFile(Fstab); err != nil {
		return st, err
	}
	st.off = WithoutSwap(st.fstab)
	all, err := swapUnits(ctx, h)
	if err != nil {
		return st, err
	}
	for _, name := range swapMakers {
		if systemctl.HasUnitFile(h, name) {
			all.makers = append(all.makers, name)
		}
	}
	for _, name := range all.makers {
		u, err := systemctl.ShowUnit(ctx, h, name)
		if err != nil {
			return st, err
		}
		if u.IsRunning() || strings.HasPrefix(u.Enablement, "enabled") {
			st.makers = append(st.makers, name)
		}
	}
	st.units = all.masks
	return st, nil
}

// swapMakerUnits returns units that create swap: some can be masked, the others, whose
// file is at the path of a mask, would be disabled.
type swapMakerUnits struct{ masks, makers []string }

// swapUnits returns the units of type swap that would start at boot although fstab does
// not name them: written by hand, found in a partition table, or created by a generator
// for compressed memory.
func swapUnits(ctx context.Context, h *host.Host) (swapMakerUnits, error) {
	var units swapMakerUnits
	out, err := h.Output(ctx, "systemctl", "list-units", "--type=swap", "--all", "--plain", "--no-legend", "--no-pager")
	if err != nil {
		return units, fmt.Errorf("listing swap units: %w", err)
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || f[1] == "masked" || f[1] == "not-found" {
			continue
		}
		p, err := h.Output(ctx, "systemctl", "show", "--property=SourcePath,FragmentPath,Following", "--", f[0])
		if err != nil {
			return units, fmt.Errorf("querying swap unit %s: %w", f[0], err)
		}
		props := systemctl.ParseProperties(p)
		file := props["FragmentPath"]
		switch {
		// A unit without a file only reflects the kernel; one that follows is another
		// name of the same unit.
		case file == "" || props["SourcePath"] == Fstab || props["Following"] != "":
		case strings.HasPrefix(file, "/etc/systemd/system/"):
			units.makers = append(units.makers, f[0])
		default:
			units.masks = append(units.masks, f[0])
		}
	}
	return units, nil
}

func checkSwap(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	st, err := readSwapState(ctx, h)
	if err != nil {
		return host.CheckResult{}, err
	}
	var changes []string
	for _, a := range st.active {
		changes = append(changes, "turn off swap on "+a.Device)
	}
	v := host.CheckResult{Diff: hostfs.UnifiedDiff(Fstab, Fstab, st.fstab, st.off)}
	if !bytes.Equal(st.fstab, st.off) {
		changes = append(changes, "remove swap from "+Fstab)
	}
	for _, u := range st.units {
		changes = append(changes, "mask "+u)
	}
	for _, u := range st.makers {
		changes = append(changes, "disable "+u)
	}
	v.Change = strings.Join(changes, ", ")
	return v, nil
}

// swapWas is the data of the ledger entry.
type swapWas struct {
	Active []swapArea        `json:"active,omitempty"`
	Fstab  hostfs.SharedFile `json:"fstab"`
}

func applySwap(ctx context.Context, h *host.Host) error {
	st, err := readSwapState(ctx, h)
	if err != nil {
		return err
	}
	was := swapWas{Active: st.active}
	if was.Fstab, err = hostfs.ReadSharedFile(h, Fstab); err != nil {
		return err
	}
	if err := h.Ledger.SaveEntry(ledger.KindSwap, "swap", was); err != nil {
		return err
	}
	// First what would activate it again, so that a crash in between does not leave swap
	// for the next boot.
	for _, name := range st.makers {
		if err := systemd.ApplyUnit(ctx, h, op.Unit{Name: name, Enabled: op.Bool(false), Running: op.Bool(false)}); err != nil {
			return err
		}
	}
	for _, name := range st.units {
		if err := systemd.ApplyUnit(ctx, h, op.Unit{Name: name, Masked: true}); err != nil {
			return err
		}
	}
	if !bytes.Equal(st.fstab, st.off) {
		if err := hostfs.RewriteSharedFile(h, Fstab, st.off); err != nil {
			return err
		}
		if err := systemctl.RunSystemctl(ctx, h, "daemon-reload"); err != nil {
			return err
		}
	}
	raw, err := bounded.ReadFile(h.DiskPath("/proc/swaps"), bounded.Proc)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the active swap: %w", err)
	}
	for _, a := range ParseSwaps(raw) {
		if _, err := h.Output(ctx, "swapoff", "--", a.Device); err != nil {
			return err
		}
	}
	return nil
}

// RestoreSwap restores the lines of fstab and turns on swap that was on. A missing area
// is reported, but is not an error.
func RestoreSwap(ctx context.Context, h *host.Host, e *ledger.Entry) (string, error) {
	var was swapWas
	if err := e.DecodeData(&was); err != nil {
		return "", err
	}
	now, err := h.ReadFile(Fstab)
	if err != nil {
		return "", err
	}
	if err := hostfs.RestoreSharedFile(h, was.Fstab, now, WithSwap(now)); err != nil {
		return "", err
	}
	raw, err := bounded.ReadFile(h.DiskPath("/proc/swaps"), bounded.Proc)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the active swap: %w", err)
	}
	on := map[string]bool{}
	for _, a := range ParseSwaps(raw) {
		on[a.Device] = true
	}
	var did []string
	for _, a := range was.Active {
		if on[a.Device] {
			continue
		}
		argv := []string{"swapon"}
		if a.Priority >= 0 { // negative ones are the kernel's choice
			argv = append(argv, "--priority", strconv.Itoa(a.Priority))
		}
		if _, err := h.Output(ctx, append(argv, "--", a.Device)...); err != nil {
			did = append(did, fmt.Sprintf("could not turn on swap on %s: %v", a.Device, err))
			continue
		}
		did = append(did, "on "+a.Device)
	}
	return strings.Join(did, ", "), nil
}
