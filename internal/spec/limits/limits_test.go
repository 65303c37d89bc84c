package limits

import "testing"

func TestCheck_RejectsLimitsThatPreventLogins(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		item, value  string
		most         uint64
		valid        bool
	}{
		{"number", "soft and hard are equal", "nofile", "65536", 0, true},
		{"both", "soft is below hard", "nofile", "1024:1048576", 0, true},
		{"unlimited", "the kernel has no bound", "memlock", "65536:unlimited", 0, true},
		{"zero", "no core files", "core", "0", 0, true},
		{"every kernel", "fs.nr_open is 1048576 at first", "nofile", "1048577", 0, false},
		{"raised", "the file sets fs.nr_open", "nofile", "2000000", 2000000, true},
		{"unlimited files", "the kernel has a bound", "nofile", "unlimited", 2000000, false},
		{"few processes", "a login needs some", "nproc", "100:65536", 0, false},
		{"reversed", "the kernel rejects it", "core", "2:1", 0, false},
		{"negative", "-1 means unlimited elsewhere", "core", "-1", 0, false},
		{"spelling", "one value has one spelling", "core", "01", 0, false},
		{"empty", "it is not a number", "core", "1:", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if problem, _ := Check(tc.item, tc.value, tc.most); (problem == "") != tc.valid {
				t.Errorf("%s: %s=%s: %q", tc.reason, tc.item, tc.value, problem)
			}
		})
	}
}
