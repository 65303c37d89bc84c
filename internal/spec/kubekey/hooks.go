package kubekey

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
)

// convertHooks converts KubeKey's scripts. In KubeKey, postClusterInstall and postInstall differ in
// whether add-ons are installed; in Slipway they run one after the other.
func (c *conversion) convertHooks() {
	s := c.in.Spec.System
	names := map[string]bool{}
	for _, group := range []struct {
		name    string
		phase   v1alpha1.HookPhase
		scripts []script
	}{
		{"preInstall", v1alpha1.HookPreInstall, s.PreInstall},
		{"postClusterInstall", v1alpha1.HookPostInstall, s.PostClusterInstall},
		{"postInstall", v1alpha1.HookPostInstall, s.PostInstall},
	} {
		for i, sc := range group.scripts {
			c.convertHook(sc, group.phase, fmt.Sprintf("spec.system.%s[%d]", group.name, i), names)
		}
	}
}

func (c *conversion) convertHook(s script, phase v1alpha1.HookPhase, from string, names map[string]bool) {
	if c.o.Scripts == "" {
		c.reportChangedMeaning(idLost, from, "spec.hooks", "the script must go to a separate file: run the command with --out to write files")
		return
	}
	if strings.TrimSpace(s.Bash) == "" {
		c.reportDropped(from, "the script is empty")
		return
	}
	to := fmt.Sprintf("spec.hooks[%d]", len(c.out.Spec.Hooks))
	name := hookName(s.Name, names)
	file := name + ".sh"
	for slices.ContainsFunc(s.Materials, func(m string) bool { return path.Base(m) == file }) {
		file = "run-" + file // both are sent to one directory
	}
	h := v1alpha1.Hook{Name: name, Phase: phase, Script: "./" + path.Join(c.o.Scripts, file)}
	for i, m := range s.Materials {
		h.Materials = append(h.Materials, c.resolvePath(m))
		c.recordOrigin(fmt.Sprintf("%s.materials[%d]", to, i), fmt.Sprintf("%s.materials[%d]", from, i))
	}
	switch s.Role {
	case "":
	case groupMaster, groupControlPlane:
		h.Roles = []v1alpha1.Role{v1alpha1.RoleControlPlane}
	case groupWorker:
		h.Roles = []v1alpha1.Role{v1alpha1.RoleWorker}
	case "k8s":
		h.Roles = []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker}
	case groupEtcd, groupRegistry:
		h.Roles = []v1alpha1.Role{v1alpha1.Role(s.Role)}
		a := attempt{
			name: "role of " + from, from: from + ".role", near: to, chosen: true,
			instead: "the script runs on the control planes",
		}
		if !c.tryValue(a, to+".roles[0]") {
			h.Roles = []v1alpha1.Role{v1alpha1.RoleControlPlane}
		}
	default:
		h.Roles = []v1alpha1.Role{v1alpha1.Role(s.Role)} // rejected, at its place
	}
	c.recordOrigin(to+".roles", from+".role")
	c.recordOrigin(to, from)
	c.out.Spec.Hooks = append(c.out.Spec.Hooks, h)
	c.scripts[h.Script] = []byte(wrapShellScript(s.Bash))
	c.comments.Add(to,
		"From KubeKey's "+from+
			". Its script was written to a file next to this one; it runs as root, in a directory with the script and its materials.")
}

// wrapShellScript returns a separate script. KubeKey runs the text with bash.
func wrapShellScript(text string) string {
	if strings.HasPrefix(text, "#!") {
		return strings.TrimRight(text, "\n") + "\n"
	}
	return "#!/bin/bash\n" + strings.TrimRight(text, "\n") + "\n"
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// maxHookName leaves room for a number.
const maxHookName = 50

// hookName returns a valid, unused name.
func hookName(name string, taken map[string]bool) string {
	plain := notName.ReplaceAllString(strings.ToLower(name), "-")
	plain = strings.Trim(plain[:min(len(plain), maxHookName)], "-")
	plain = cmp.Or(plain, "script")
	unique := plain
	for n := 2; taken[unique]; n++ {
		unique = plain + "-" + strconv.Itoa(n)
	}
	taken[unique] = true
	return unique
}
