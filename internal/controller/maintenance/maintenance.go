// Package maintenance computes the maintenance windows of a cluster.
package maintenance

import (
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
)

// days is the number of days in which the next window is looked for: a week, and one day on each side for time zones
// and for a window that began yesterday.
const days = 9

// NextOpen returns the first time from now on at which a window is open: now itself if one is open, or if there are no
// windows. It returns false if no window ever opens.
func NextOpen(windows []v1alpha1.MaintenanceWindow, now time.Time) (time.Time, bool) {
	if len(windows) == 0 {
		return now, true
	}
	var next time.Time
	for _, w := range windows {
		at, ok := nextOpen(w, now)
		if ok && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, !next.IsZero()
}

// nextOpen is NextOpen for one window.
func nextOpen(w v1alpha1.MaintenanceWindow, now time.Time) (time.Time, bool) {
	zone, err := time.LoadLocation(w.TimeZone) // "" is UTC
	clock, err2 := time.Parse("15:04", w.Start)
	if err != nil || err2 != nil || w.Duration == nil {
		return time.Time{}, false // the spec is not valid
	}
	today := now.In(zone)
	for i := -1; i < days; i++ {
		day := time.Date(today.Year(), today.Month(), today.Day()+i, 12, 0, 0, 0, zone)
		if len(w.Days) > 0 && !slices.Contains(w.Days, day.Format("Mon")) {
			continue
		}
		start := startOn(day, clock.Hour(), clock.Minute())
		switch {
		case start.After(now):
			return start, true
		case now.Before(start.Add(w.Duration.Duration)):
			return now, true
		}
	}
	return time.Time{}, false
}

// startOn returns a time of a day. A time that the change to summer time skips is moved by the length of the change;
// of a time that comes twice, the first one counts.
func startOn(day time.Time, hour, minute int) time.Time {
	at := time.Date(day.Year(), day.Month(), day.Day(), hour, minute, 0, 0, day.Location())
	if at.Hour() != hour || at.Minute() != minute {
		midnight := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, day.Location())
		return midnight.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute)
	}
	for _, change := range []time.Duration{time.Hour, 30 * time.Minute} {
		if earlier := at.Add(-change); earlier.Hour() == hour && earlier.Minute() == minute {
			return earlier
		}
	}
	return at
}

// Describe returns a time for a message, in the time zones of the windows: "2026-11-29T22:30:00+01:00".
func Describe(windows []v1alpha1.MaintenanceWindow, at time.Time) string {
	zone := time.UTC
	if len(windows) > 0 && strings.TrimSpace(windows[0].TimeZone) != "" {
		if is, err := time.LoadLocation(windows[0].TimeZone); err == nil {
			zone = is
		}
	}
	return at.In(zone).Format(time.RFC3339)
}
