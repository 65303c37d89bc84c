package lifecycletest

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/remote"
)

// Run simulates systemctl and etcdctl.
func (c *Conn) Run(ctx context.Context, cmd remote.Command, _ io.Reader, out, _ io.Writer) (int, error) {
	if c.Hangs {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	switch filepath.Base(cmd.Argv[0]) {
	case "systemctl":
		fmt.Fprintln(out, "active")
		return 0, nil
	case "etcdctl":
		if c.Etcdctl != nil {
			return c.Etcdctl(cmd.Argv[1:], out), nil
		}
		if !c.API.IsRunning() {
			return 1, nil
		}
		if slices.Contains(cmd.Argv, "status") {
			alarms := []string{}
			if c.EtcdAlarm != "" {
				alarms = append(alarms, strconv.Quote(c.EtcdAlarm))
			}
			fmt.Fprintf(out,
				`[{"Endpoint":"https://a:2379","Status":{"header":{"member_id":10},"version":"3.7.0","dbSize":4096,"leader":10,"errors":[%s]}}]`,
				strings.Join(alarms, ","))
			return 1, nil // one member did not answer
		}
		fmt.Fprint(out,
			`{"members":[{"ID":10,"name":"cp1","clientURLs":["https://a:2379"]},{"ID":11,"name":"cp2","clientURLs":["https://b:2379"]}]}`)
		return 0, nil
	}
	if c.Prints != nil {
		return 0, c.Prints(cmd.Argv, out)
	}
	return 0, fmt.Errorf("the simulated host does not run %v", cmd.Argv)
}
