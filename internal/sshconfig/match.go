package sshconfig

import "strings"

// answer reports whether lines apply to the host; unknown has the Match line that is not
// evaluated.
type answer struct {
	is tristate
	by Place
}

type tristate int

const (
	no tristate = iota
	isYes
	unknown
)

var yes = answer{is: isYes}

// andInner returns the answer for lines within both; at is the line of the inner one.
func (a answer) andInner(inner tristate, at Place) answer {
	switch {
	case a.is == no || inner == no:
		return answer{is: no}
	case a.is == unknown:
		return a
	case inner == unknown:
		return answer{is: unknown, by: at}
	}
	return yes
}

func tristateOf(ok bool) tristate {
	if ok {
		return isYes
	}
	return no
}

// matchHosts reports whether the patterns of a Host line match the host: its given name and,
// in the second pass, the name from HostName.
func (r *reader) matchHosts(patterns []string) tristate {
	if r.final {
		return tristateOf(matchesList(patterns, r.hostName()))
	}
	return tristateOf(matchesList(patterns, r.Host))
}

// hostName returns the host name from HostName, else the given one.
func (r *reader) hostName() string {
	name, err := ExpandTokens(r.settings.HostName, map[byte]string{'h': r.Host}, nil)
	if err != nil || name == "" {
		return r.Host
	}
	return name
}

// matchesList reports whether a pattern matches and none excludes name.
func matchesList(patterns []string, name string) bool {
	found := false
	for _, p := range patterns {
		not := strings.HasPrefix(p, "!")
		if matchWildcard(strings.TrimPrefix(p, "!"), name) {
			if not {
				return false
			}
			found = true
		}
	}
	return found
}

// evaluateMatch evaluates a Match line: all its criteria have to be true.
func (r *reader) evaluateMatch(args []string, at Place) (tristate, error) {
	if len(args) == 1 && strings.EqualFold(args[0], "all") {
		return isYes, nil
	}
	result := isYes
	for i := 0; i < len(args); i++ {
		word, value, given := strings.Cut(args[i], "=")
		not := strings.HasPrefix(word, "!")
		word = strings.ToLower(strings.TrimPrefix(word, "!"))
		var is tristate
		switch word {
		case "all": // alone, or after these two
			if i == 0 || i+1 < len(args) {
				return no, newError(at, "Match all cannot be combined with other criteria")
			}
			continue
		case "canonical", "final":
			r.wantFinal = r.wantFinal || word == "final"
			is = tristateOf(r.final)
		default:
			if !given {
				if i++; i >= len(args) {
					return no, newError(at, "a Match criterion has no value")
				}
				value = args[i]
			}
			is = r.evaluateCriterion(word, value)
		}
		switch {
		case is == unknown && result == isYes:
			result = unknown
		case is != unknown && (is == isYes) == not:
			result = no
		}
	}
	return result, nil
}

// evaluateCriterion evaluates one criterion. A criterion that would run a program or use the
// network is unknown.
func (r *reader) evaluateCriterion(word, value string) tristate {
	patterns := strings.Split(value, ",")
	switch word {
	case "host":
		return tristateOf(matchesList(lowerAll(patterns), strings.ToLower(r.hostName())))
	case "originalhost":
		return tristateOf(matchesList(lowerAll(patterns), strings.ToLower(r.Host)))
	case "user":
		user := r.User
		if user == "" {
			user = r.settings.User.Text
		}
		if user == "" {
			user = r.DefaultUser
		}
		return tristateOf(matchesList(patterns, user))
	case "localuser":
		return tristateOf(matchesList(patterns, r.LocalUser))
	}
	return unknown
}

func lowerAll(list []string) (out []string) {
	for _, s := range list {
		out = append(out, strings.ToLower(s))
	}
	return out
}

// matchWildcard matches only with * and ?.
func matchWildcard(pattern, name string) bool {
	star, mark := -1, 0
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0: // the last star takes one more
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
