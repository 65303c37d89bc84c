package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// runProgram runs a program of the host; the error has its output.
func runProgram(ctx context.Context, stdin string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", missingProgram(name)
		}
		said := strings.TrimSpace(talk.String())
		return "", fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, said)
	}
	return out.String(), nil
}

// packageOf maps programs to their Debian packages.
var packageOf = map[string]string{
	"ip": "iproute2", "mkfs.ext4": "e2fsprogs", "debootstrap": "debootstrap",
	"nft": "nftables", "ssh": "openssh-client", "apt-get": "apt",
}

func missingProgram(name string) error {
	return refuseWith(IDMissingProgram, name+" is not installed",
		"apt-get install -y "+packageOf[name])
}

// needPrograms reports all missing programs at once.
func needPrograms(names ...string) error {
	var missing []string
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			missing = append(missing, n)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	packages := make([]string, len(missing))
	for i, n := range missing {
		packages[i] = packageOf[n]
	}
	return refuseWith(IDMissingProgram, strings.Join(missing, ", ")+": not installed",
		"apt-get install -y "+strings.Join(packages, " "))
}

// pollUntil calls ask until it returns true or an error, or the context ends.
func pollUntil(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}
