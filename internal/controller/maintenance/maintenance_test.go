package maintenance

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
)

// window returns a window of this length.
func window(start string, length time.Duration, zone string, days ...string) v1alpha1.MaintenanceWindow {
	return v1alpha1.MaintenanceWindow{Days: days, Start: start, Duration: &metav1.Duration{Duration: length}, TimeZone: zone}
}

func TestNextOpen_FollowsClockOfZone(t *testing.T) {
	const berlin = "Europe/Berlin"
	for _, tc := range []struct {
		name, reason string
		windows      []v1alpha1.MaintenanceWindow
		now, want    string // "" for never
	}{
		{"no windows", "operations start at any time", nil, "2026-11-29T20:00:00Z", "2026-11-29T20:00:00Z"},
		{
			"open", "the window has begun",
			[]v1alpha1.MaintenanceWindow{window("19:00", 2*time.Hour, "")},
			"2026-11-29T20:00:00Z", "2026-11-29T20:00:00Z",
		},
		{
			"at its end", "the window has just ended",
			[]v1alpha1.MaintenanceWindow{window("19:00", time.Hour, "")},
			"2026-11-29T20:00:00Z", "2026-11-30T19:00:00Z",
		},
		{
			"over midnight", "the window began yesterday",
			[]v1alpha1.MaintenanceWindow{window("23:00", 4*time.Hour, "", "Sat")},
			"2026-11-29T02:00:00Z", "2026-11-29T02:00:00Z",
		},
		{
			"another day", "a window has days",
			[]v1alpha1.MaintenanceWindow{window("22:00", time.Hour, "", "Sat", "Wed")},
			"2026-11-29T20:00:00Z", "2026-12-02T22:00:00Z",
		},
		{
			"the same day next week", "today's window is over",
			[]v1alpha1.MaintenanceWindow{window("10:00", time.Hour, "", "Sun")},
			"2026-11-29T20:00:00Z", "2026-12-06T10:00:00Z",
		},
		{
			"zone", "the clock of the zone counts",
			[]v1alpha1.MaintenanceWindow{window("22:00", time.Hour, berlin)},
			"2026-11-29T20:00:00Z", "2026-11-29T21:00:00Z",
		},
		{
			"day of the zone", "it is Monday there already",
			[]v1alpha1.MaintenanceWindow{window("01:00", time.Hour, "Pacific/Auckland", "Mon")},
			"2026-11-29T11:00:00Z", "2026-11-29T12:00:00Z",
		},
		{
			"earliest", "any window can be used",
			[]v1alpha1.MaintenanceWindow{window("23:00", time.Hour, ""), window("22:00", time.Hour, berlin)},
			"2026-11-29T20:00:00Z", "2026-11-29T21:00:00Z",
		},
		{
			"summer time", "in summer the zone is an hour ahead",
			[]v1alpha1.MaintenanceWindow{window("22:00", time.Hour, berlin)},
			"2026-07-01T12:00:00Z", "2026-07-01T20:00:00Z",
		},
		{
			"skipped time", "the window of that night is not lost",
			[]v1alpha1.MaintenanceWindow{window("02:30", time.Hour, berlin, "Sun")},
			"2026-03-28T20:00:00Z", "2026-03-29T01:30:00Z",
		},
		{
			"in the moved window", "it begins at 03:30",
			[]v1alpha1.MaintenanceWindow{window("02:30", time.Hour, berlin, "Sun")},
			"2026-03-29T02:15:00Z", "2026-03-29T02:15:00Z",
		},
		{
			"repeated time", "the first one counts",
			[]v1alpha1.MaintenanceWindow{window("02:30", time.Hour, berlin, "Sun")},
			"2026-10-24T20:00:00Z", "2026-10-25T00:30:00Z",
		},
		{
			"after the repeated time", "the window opens once",
			[]v1alpha1.MaintenanceWindow{window("02:30", 30*time.Minute, berlin, "Sun")},
			"2026-10-25T01:40:00Z", "2026-11-01T01:30:00Z",
		},
		{
			"over the change", "the length is real time",
			[]v1alpha1.MaintenanceWindow{window("01:00", 4*time.Hour, berlin, "Sun")},
			"2026-10-25T02:59:00Z", "2026-10-25T02:59:00Z",
		},
		{
			"after the change", "the length is real time",
			[]v1alpha1.MaintenanceWindow{window("01:00", 4*time.Hour, berlin, "Sun")},
			"2026-10-25T03:00:00Z", "2026-11-01T00:00:00Z",
		},
		{
			"half an hour", "Lord Howe changes by 30 minutes",
			[]v1alpha1.MaintenanceWindow{window("01:45", time.Hour, "Australia/Lord_Howe", "Sun")},
			"2026-04-04T12:00:00Z", "2026-04-04T14:45:00Z",
		},
		{
			"unknown zone", "the spec is not valid",
			[]v1alpha1.MaintenanceWindow{window("01:00", time.Hour, "Mars")},
			"2026-11-29T20:00:00Z", "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, tc.now)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := NextOpen(tc.windows, now)
			text := got.UTC().Format(time.RFC3339)
			if ok != (tc.want != "") || ok && text != tc.want {
				t.Errorf("%s: got %s, %t, want %q", tc.reason, text, ok, tc.want)
			}
		})
	}
}

// TestNextOpen_OpensOncePerDay looks at each quarter of an hour of a year with two changes of the clock.
func TestNextOpen_OpensOncePerDay(t *testing.T) {
	windows := []v1alpha1.MaintenanceWindow{window("02:30", time.Hour, "Europe/Berlin")}
	opened, last := 0, false
	for at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC); at.Year() == 2026; at = at.Add(15 * time.Minute) {
		next, ok := NextOpen(windows, at)
		if !ok || next.Before(at) || next.Sub(at) > 25*time.Hour {
			t.Fatalf("at %s: %s, %t", at, next, ok)
		}
		if is := next.Equal(at); is && !last {
			opened++
		}
		last = next.Equal(at)
	}
	if opened != 364 {
		t.Errorf("the window opened %d times, want once a day", opened)
	}
}

func TestDescribe_UsesZoneOfWindow(t *testing.T) {
	at := time.Date(2026, 11, 29, 20, 0, 0, 0, time.UTC)
	for zone, want := range map[string]string{"": "2026-11-29T20:00:00Z", "Europe/Berlin": "2026-11-29T21:00:00+01:00"} {
		if got := Describe([]v1alpha1.MaintenanceWindow{window("22:00", time.Hour, zone)}, at); got != want {
			t.Errorf("zone %q: %s, want %s", zone, got, want)
		}
	}
}
