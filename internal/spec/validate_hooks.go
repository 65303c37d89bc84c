package spec

import (
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

func (v *validator) checkHooks() {
	names := map[string]int{}
	for i, h := range v.c.Spec.Hooks {
		path := yamlfile.IndexPath("spec.hooks", i)
		v.checkHookName(h, path, i, names)
		if !v.requireText(path+".phase", string(h.Phase), "use "+orList(hookPhases())) {
			v.checkOneOf(path+".phase", string(h.Phase), hookPhases(), nil)
		}
		before := entries{}
		for r, role := range h.Roles {
			v.checkHookRole(yamlfile.IndexPath(path+".roles", r), role)
			v.checkRepeated(diag.Warning, before, yamlfile.IndexPath(path+".roles", r), string(role), string(role))
		}
		if !v.requireText(path+".script", h.Script, "write the path of the script, relative to the cluster file") &&
			strings.Contains(h.Script, "\n") {
			v.refuse(idInvalidValue, path+".script", "this is a script, but the path of its file is expected",
				"save the script next to the cluster file, and write its path")
		}
		base := map[string]bool{filepath.Base(h.Script): true}
		for m, file := range h.Materials {
			at := yamlfile.IndexPath(path+".materials", m)
			if v.requireText(at, file, "write the path of the file, relative to the cluster file") {
				continue
			}
			if base[filepath.Base(file)] {
				v.refuse(idDuplicateName, at, "two files of this hook are named "+filepath.Base(file),
					"use different file names: Slipway sends both to one directory")
			}
			base[filepath.Base(file)] = true
		}
		v.checkPositive(path+".timeout", h.Timeout)
	}
}

func (v *validator) checkHookName(h v1alpha1.Hook, path string, i int, names map[string]int) {
	path += ".name"
	if v.requireText(path, h.Name, "write the name of the hook: logs and state use it") {
		return
	}
	if len(validation.IsDNS1123Label(h.Name)) > 0 {
		v.refuse(idInvalidName, path,
			strconv.Quote(h.Name)+" is not a valid hook name: only a-z, 0-9 and '-' are allowed, with a letter or digit first and last",
			didYouMeanName(h.Name))
	}
	if first, ok := names[h.Name]; ok {
		v.refuse(idDuplicateName, path, "the name "+h.Name+" is also used by hooks["+strconv.Itoa(first)+"]", "give each hook its own name")
		return
	}
	names[h.Name] = i
}

func (v *validator) checkHookRole(path string, role v1alpha1.Role) {
	known := []string{string(v1alpha1.RoleControlPlane), string(v1alpha1.RoleWorker)}
	switch role {
	case v1alpha1.RoleControlPlane, v1alpha1.RoleWorker:
	default:
		v.refuse(idUnknownRole, path, "there is no role "+strconv.Quote(string(role)), SuggestWord(string(role), known))
	}
}

// hookPhases returns the phases.
func hookPhases() []string {
	return []string{
		string(v1alpha1.HookPreInstall), string(v1alpha1.HookPostControlPlane), string(v1alpha1.HookPostInstall),
		string(v1alpha1.HookPreDelete), string(v1alpha1.HookPreUpgrade), string(v1alpha1.HookPostUpgrade),
	}
}
