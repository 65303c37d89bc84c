package op

// Sysctl is a set of kernel parameters, in force now and after a reboot.
type Sysctl struct {
	// File is the file for them, below /etc/sysctl.d.
	File   string            `json:"file"`
	Values map[string]string `json:"values"`
}

// KindSysctl is the kind of Sysctl.
const KindSysctl Kind = "sysctl"

func (Sysctl) Kind() Kind { return KindSysctl }

func (o Sysctl) Target() string { return o.File }

// Limits are resource limits of login sessions. pam_limits sets them at each login, so a
// value that the kernel rejects makes every login fail.
type Limits struct {
	// File is the file for them, below /etc/security/limits.d.
	File   string  `json:"file"`
	Limits []Limit `json:"limits"`
	// OpenFilesMax is the fs.nr_open that an earlier operation sets; 0 uses the value of
	// the host.
	OpenFilesMax uint64 `json:"openFilesMax,omitempty"`
}

// Limit is one resource limit, in the words of limits.conf(5): "nofile", "65536", "unlimited".
type Limit struct {
	Item string `json:"item"`
	Soft string `json:"soft"`
	Hard string `json:"hard"`
}

// KindLimits is the kind of Limits.
const KindLimits Kind = "limits"

func (Limits) Kind() Kind { return KindLimits }

func (o Limits) Target() string { return o.File }

// KernelModules are loaded now and after a reboot. A built-in module counts as loaded.
type KernelModules struct {
	// File is the file for the list, below /etc/modules-load.d.
	File    string   `json:"file"`
	Modules []string `json:"modules"`
}

// KindKernelModules is the kind of KernelModules.
const KindKernelModules Kind = "kernel-modules"

func (KernelModules) Kind() Kind { return KindKernelModules }

func (o KernelModules) Target() string { return o.File }

// SwapOff turns swap off now and removes its lines from /etc/fstab.
type SwapOff struct{}

// KindSwapOff is the kind of SwapOff.
const KindSwapOff Kind = "swap-off"

func (SwapOff) Kind() Kind { return KindSwapOff }

func (SwapOff) Target() string { return "swap" }

// Hostname sets the static and the current host name.
type Hostname struct {
	Name string `json:"name"`
}

// KindHostname is the kind of Hostname.
const KindHostname Kind = "hostname"

func (Hostname) Kind() Kind { return KindHostname }

func (Hostname) Target() string { return "hostname" }

// Timezone sets the system's time zone, such as "Europe/Berlin".
type Timezone struct {
	Name string `json:"name"`
}

// KindTimezone is the kind of Timezone.
const KindTimezone Kind = "timezone"

func (Timezone) Kind() Kind { return KindTimezone }

func (Timezone) Target() string { return "timezone" }

// TimeSync makes the host use these time servers.
type TimeSync struct {
	Servers []string `json:"servers"`
}

// KindTimeSync is the kind of TimeSync.
const KindTimeSync Kind = "time-sync"

func (TimeSync) Kind() Kind { return KindTimeSync }

func (TimeSync) Target() string { return "time-sync" }

// User is a system user without a login.
type User struct {
	Name string `json:"name"`
	Home string `json:"home,omitempty"`
}

// KindUser is the kind of User.
const KindUser Kind = "user"

func (User) Kind() Kind { return KindUser }

func (o User) Target() string { return o.Name }

// Reboot reboots the host once, so that one boot ends. The connection to the host is lost
// meanwhile. A later check on the new boot finds nothing to do.
type Reboot struct {
	// Boot is the boot ID (HostFacts.BootID) that must no longer be the current one.
	Boot string `json:"boot"`
	// Gate must respond before the reboot, within its timeout.
	Gate *Wait `json:"gate,omitempty"`
}

// KindReboot is the kind of Reboot.
const KindReboot Kind = "reboot"

// Kind is KindReboot.
func (Reboot) Kind() Kind { return KindReboot }

// Target is the same for each host: a host has one boot at a time.
func (Reboot) Target() string { return "host" }
