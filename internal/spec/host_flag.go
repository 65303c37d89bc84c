package spec

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/hostaddress"
)

// A HostFlag is a host from the command line.
type HostFlag struct {
	User    string // "" means the default
	Address string
	Port    int // 0 means the default
	// InternalAddress cannot be written in a flag; other programs set it.
	InternalAddress string
	Name            string // "" is generated from the role and a number
	Roles           []v1alpha1.Role
}

// NameHosts numbers hosts without a name: cp-1, etcd-1, worker-1, worker-2.
func NameHosts(hosts []HostFlag) {
	taken := map[string]bool{}
	for _, h := range hosts {
		taken[h.Name] = true
	}
	for i := range hosts {
		h := &hosts[i]
		prefix := "worker-"
		switch {
		case slices.Contains(h.Roles, v1alpha1.RoleControlPlane):
			prefix = "cp-"
		case slices.Contains(h.Roles, v1alpha1.RoleEtcd) && len(h.Roles) == 1:
			prefix = "etcd-"
		case slices.Contains(h.Roles, v1alpha1.RoleRegistry) && len(h.Roles) == 1:
			prefix = "registry-"
		}
		for n := 1; h.Name == ""; n++ {
			if name := prefix + strconv.Itoa(n); !taken[name] {
				h.Name, taken[name] = name, true
			}
		}
	}
}

// hostFlagForm is used in hints.
const hostFlagForm = "write it as user@address:port=role,role,name=NAME; user, port and name may be left out"

// ParseHostFlag reads [user@]address[:port]=role[,role][,name=NAME]; an IPv6
// address with a port is in brackets. The error is a diag.List.
func ParseHostFlag(flag string) (HostFlag, error) {
	var h HostFlag
	where, what, ok := strings.Cut(flag, "=")
	if !ok || what == "" {
		return h, hostFlagError(idMissingRole, flag, "has no role", "add =control-plane, =worker or =etcd to it")
	}
	if user, rest, ok := strings.Cut(where, "@"); ok {
		if user == "" {
			return h, hostFlagError(idInvalidHostFlag, flag, "has no user before the @", hostFlagForm)
		}
		h.User, where = user, rest
	}
	var problem string
	if h.Address, h.Port, problem = splitAddress(where); problem != "" {
		return h, hostFlagError(idInvalidHostFlag, flag, problem, hostFlagForm)
	}
	for _, item := range strings.Split(what, ",") {
		if err := h.setItem(flag, item); err != nil {
			return h, err
		}
	}
	if len(h.Roles) == 0 {
		return h, hostFlagError(idMissingRole, flag, "has no role", "add control-plane, worker or etcd to it")
	}
	return h, nil
}

// setItem sets one of the words after the "=".
func (h *HostFlag) setItem(flag, item string) error {
	roles := []string{string(v1alpha1.RoleControlPlane), string(v1alpha1.RoleWorker), string(v1alpha1.RoleEtcd), string(v1alpha1.RoleRegistry)}
	key, value, pair := strings.Cut(item, "=")
	switch {
	case pair && key == "name" && value != "" && h.Name == "":
		h.Name = value
	case pair:
		return hostFlagError(idInvalidHostFlag, flag, "has an unknown part "+strconv.Quote(item), hostFlagForm)
	case !slices.Contains(roles, item):
		return hostFlagError(idUnknownRole, flag, "has an unknown role "+strconv.Quote(item), SuggestWord(item, roles))
	case slices.Contains(h.Roles, v1alpha1.Role(item)):
		return hostFlagError(idInvalidHostFlag, flag, "names the role "+item+" twice", "keep one of them")
	default:
		h.Roles = append(h.Roles, v1alpha1.Role(item))
	}
	return nil
}

func hostFlagError(id, flag, problem, hint string) error {
	return diag.List{{ID: id, Severity: diag.Error, Path: "--host", Message: strconv.Quote(flag) + " " + problem, Hint: hint}}
}

// splitAddress splits address, address:port, [v6] and [v6]:port.
func splitAddress(text string) (address string, port int, problem string) {
	if text == "" {
		return "", 0, "has no address"
	}
	address = text
	if _, err := netip.ParseAddr(text); err != nil {
		i := strings.LastIndex(text, ":")
		if i >= 0 && !strings.HasSuffix(text, "]") {
			n, err := strconv.Atoi(text[i+1:])
			if err != nil || n < 1 || n > 65535 {
				return "", 0, "has an invalid port " + strconv.Quote(text[i+1:])
			}
			address, port = text[:i], n
		}
		if inner, ok := strings.CutPrefix(address, "["); ok {
			address = strings.TrimSuffix(inner, "]")
		}
	}
	if _, ok := hostaddress.Check(address); !ok {
		return "", 0, "has an address " + strconv.Quote(address) + ", which is neither an IP address nor a host name"
	}
	return CanonicalIP(address), port, ""
}
