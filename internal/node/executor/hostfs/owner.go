//go:build linux

package hostfs

import (
	"fmt"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/node/executor/host"
)

// The account files. They are edited here and not with useradd, which not every host has
// and which leaves copies of them.
const (
	Passwd  = "/etc/passwd"
	Group   = "/etc/group"
	Shadow  = "/etc/shadow"
	Gshadow = "/etc/gshadow"
)

// unknownName reports a user or group that does not exist.
type unknownName string

func (u unknownName) Error() string { return string(u) }

// userID returns the ID of a user; "" is root.
func userID(h *host.Host, name string) (int, error) { return findAccount(h, Passwd, "user", name) }

// groupID returns the ID of a group; "" is the group of root.
func groupID(h *host.Host, name string) (int, error) { return findAccount(h, Group, "group", name) }

func findAccount(h *host.Host, file, what, name string) (int, error) {
	if name == "" || name == "root" {
		return 0, nil
	}
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	raw, err := h.ReadFile(file)
	if err != nil {
		return 0, err
	}
	if f := PasswdField(raw, name); len(f) >= 3 {
		return strconv.Atoi(f[2])
	}
	return 0, unknownName(fmt.Sprintf("%s %s does not exist", what, name))
}

// PasswdField returns the fields of an account's line, or nil.
func PasswdField(raw []byte, name string) []string {
	for line := range strings.Lines(string(raw)) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), ":"); f[0] == name {
			return f
		}
	}
	return nil
}
