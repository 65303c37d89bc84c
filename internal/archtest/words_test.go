package archtest

import (
	"regexp"
	"strings"
)

// A wordRule forbids a phrase. In its patterns a space matches any white
// space, also a line break, and letters match in either case.
type wordRule struct {
	name    string
	pattern string
	unless  string // a hit that this matches too is allowed
	instead string
	hit     string // an example that the rule finds
	allowed string // a similar example that the rule allows

	find, except *regexp.Regexp
}

// Parts of patterns.
const (
	toBe     = `(?:is|are|was|were|be|been|being)`
	goes     = `\b(?:go|goes|going|gone|went)`
	takes    = `\b(?:take|takes|taking|taken|took)`
	start    = `(?:^|[.!?:;] )` // the start of a sentence or of a part of one
	fewWords = `(?:[\w%']+ ){0,2}`
)

// avoid lists the phrases that users, and readers of comments, must not meet.
var avoid = compileRules([]wordRule{
	{
		name:    "is-no",
		pattern: `(?:\b(?:there|here) )?` + toBe + ` (?:no|none)\b(?: \w+)?`,
		unless:  `^(?:there|here) |no (?:longer|more|less|fewer|later|earlier|better|way)\b`,
		instead: `"is not a X", "invalid X"`,
		hit:     "x is no kernel parameter", allowed: "the host is no longer reachable",
	},
	{
		name: "that-of",
		pattern: joinAlternatives(`\b(?:that|those) of\b`, `\bones? of before\b`,
			`\bthose (?:that|who|which|whose|in|on|for|with|without|from|before|after|there|here|at|by|to)\b`),
		instead: "repeat the noun",
		hit:     "the key is newer than that of the host", allowed: "the key of that host",
	},
	{
		name: "free-relative",
		pattern: `\bwhat ` + joinAlternatives(
			`others?|another|somebody|nobody|anybody|one|comes?|came|goes|went|stands|stood|lies|lay|runs|ran|cannot|can|may|hosts?|has|had|have|of`,
			`(?:is|was|are|were) (?:there|here|not|no|in|on|at|of|before|after|left|kept|new|old|seen|said|told|held)`,
			`it (?:has|had|holds|held|keeps|kept|knew|knows|was|is)`, `they (?:have|had|are|were|know)`) + `\b`,
		instead: "name the thing",
		hit:     "remove what others wrote", allowed: "shows what will change",
	},
	{
		name:    "free-relative-start",
		pattern: start + `(?-i:What(?:ever)?|Who(?:ever|m|se)?|That which|Those)\b(?: [^.?!]*)?[?]?`,
		unless:  `\?$`,
		instead: "begin with the noun",
		hit:     "What the bundle holds is verified.", allowed: "Whole files are kept. What is wrong?",
	},
	{
		name: "who",
		pattern: joinAlternatives(
			`(?:^|[;:(] ?|\b(?:and|or|by|of|to|for|than|if|but|only|not|from|that|with|as|asks|says|knows|when|before|after|until) )who `+
				joinAlternatives(`is|has|had|was|may|can|could|does|did|runs?|reads?|holds?|asks?|uses?|used|calls|called|wrote|writes`,
					`gets|gives|comes|came|looks?|wants?|waits?|logs?|it|the|a`)+`\b`, `\bwhoever\b`),
		instead: `name the person or program: "the user", "clients", "anyone who"`,
		hit:     "readable for all, and who asks the API trusts it", allowed: "users who ask",
	},
	{
		name:    "says-that",
		pattern: `\b(?:says?|said|saying) (?:that|whether|what|which|how|if|who|where|when|of)\b`,
		instead: `"reports whether", "prints", "describes"`,
		hit:     "ready says that the node is ready", allowed: "the user said yes",
	},
	{
		name: "stays", pattern: `\bstays\b(?: \w+)?|\bstay (?:there|what)\b`, unless: `stays (?:in|within|inside|below|under)$`,
		instead: `"is kept", "remains"`,
		hit:     "the file stays there", allowed: "the size stays within the limit",
	},
	{
		name: "nobody", pattern: `\b(?:nobody|somebody)\b`,
		instead: "the passive voice, or name the actor",
		hit:     "nobody reads it", allowed: "no process reads it",
	},
	{
		name: "go-on", pattern: goes + ` on\b`,
		instead: `"continue", "resume"`,
		hit:     "the upgrade goes on with w1", allowed: "go to the next step",
	},
	{
		name:    "take-back",
		pattern: joinAlternatives(takes, goes, `\b(?:put|puts|putting|give|gives|gave|given|bring|brings|brought)`) + ` ` + fewWords + `back\b`,
		instead: `"roll back", "restore", "reset"`,
		hit:     "rollback takes it back", allowed: "rolls the upgrade back",
	},
	{
		name: "any-more", pattern: `\bany ?more\b(?: than)?`, unless: `than$`,
		instead: `"no longer"`,
		hit:     "it is not used any more", allowed: "it is no longer used",
	},
	{
		name:    "told",
		pattern: joinAlternatives(toBe+` (?:not |\w+ly )?told\b`, `\btold (?:of|what|that|how|which|so)\b`, `\b(?:tells?|telling) of\b`),
		instead: `"is reported", "is printed"`,
		hit:     "the user is told", allowed: "tell the kubelet to restart",
	},
	{
		name:    "of-its-own",
		pattern: `(?:\b\w+ )?\bof (?:its|their|his|her|your|our|my|one's) own\b|\bof (?:theirs|hers|ours|yours|mine)\b`,
		unless:  `^(?:any|one|each|all|some|none|many|few) of`,
		instead: `"separate", "dedicated", or nothing`,
		hit:     "a disk of its own", allowed: "one of its own addresses",
	},
	{
		name: "by-itself", pattern: `\bby (?:itself|themselves|himself|oneself)\b`,
		instead: `"automatically"; "separately"`,
		hit:     "it starts by itself", allowed: "it starts automatically",
	},
	{
		name: "anew", pattern: `\b(?:anew|afresh)\b`,
		instead: `"again", "recreate", "restart"`,
		hit:     "write it anew", allowed: "a new file",
	},
	{
		name: "beside", pattern: `\bbeside\b`,
		instead: `"next to", "besides", "in addition to"`,
		hit:     "the file beside it", allowed: "besides the file",
	},
	{
		name: "go-by", pattern: goes + ` by\b`,
		instead: `"use", "follow"`,
		hit:     "hosts go by the file", allowed: "hosts use the file",
	},
	{
		name: "on-record", pattern: `\bon record\b|\b(?:off|on) the records?\b|\b(?:in|from) the records\b`,
		instead: `"saved", "removed from Slipway's state"`,
		hit:     "the cluster is off the records", allowed: "record the cluster",
	},
	{
		name:    "have-be",
		pattern: `\b(?:have|has|having|had) (?:[^\s.,;:]+ ){1,5}be [a-z]+`,
		unless: joinAlternatives(`\b(?:to|can|cannot|could|must|may|might|will|would|should|shall|not|and|or|that|never|which|it|they|what) be\b`,
			`^\w+ to `),
		instead: `"make X Y", "set", "cause"`,
		hit:     "have the pods be healthy", allowed: "hosts have to be reachable",
	},
	{
		name: "have-do",
		pattern: `\b(?:have|has|having) (?:the|a|an|its|their|each|every|all|them|it) (?:[\w'-]+ ){0,2}` +
			joinAlternatives(`ask|run|make|start|stop|go|use|take|read|write|serve|wait|know|trust|renew|give|look|begin`) + `\b`,
		unless:  `\b(?:to|not|and|or) \w+$`,
		instead: `"make X do Y", "let", "cause"`,
		hit:     "have the kubelet ask for credentials", allowed: "the hosts have a runtime",
	},
	{
		name: "come-to", pattern: `\b(?:come|comes|came|coming) to\b`,
		instead: `"is running", "is complete", "reaches"`,
		hit:     "it has come to its end", allowed: "it has ended",
	},
	{
		name: "mend", pattern: `\b(?:mend|mends|mended|mending)\b`,
		instead: `"fix", "repair"`,
		hit:     "mend the member", allowed: "repair the member, as recommended",
	},
	{
		name:    "is-well",
		pattern: `\b(?:is|are|was|were|be|all|not) well\b(?:[ -]\w+)?`,
		unless:  `well[ -](?:formed|known|under|below|above|within|tested|over)`,
		instead: `"is healthy"`,
		hit:     "the member is well", allowed: "the name is well known",
	},
	{
		name: "inverted",
		pattern: joinAlternatives(`(?:^|[.!?] )(?-i:Told) of `+toBe,
			`[.!?] (?-i:Told|Said|Asked|Shown|Kept|Left|Made|Written|Read|Taken|Given|Known|Meant|Counted|Refused|Removed|Restored) `+toBe,
			`(?:^|[.!?] )(?-i:Was|Were|Had|Should) (?:the|a|an|it|its|one|they|this|that|no|all) [^.?!]*,`),
		instead: "subject, verb, object",
		hit:     "Told of is what ends soon", allowed: "Removed files are restored",
	},
	{
		name: "let-go", pattern: `\b(?:let|lets|letting) (?:[\w']+ ){0,3}go\b`,
		instead: `"clean up", "remove", "release"`,
		hit:     "let earlier bundles go", allowed: "let the user choose",
	},
	{
		name: "of-x's", pattern: `\bof [a-z]+'s(?:[.,;:)]|$)`,
		instead: `"a setting of Docker", "a Docker setting"`,
		hit:     "this is a setting of docker's", allowed: "the size of etcd's database",
	},
	{
		name: "is-another", pattern: `\b` + toBe + ` (?:another|others)(?:[.,;:)]|$)`,
		instead: `"differs", "does not match"`,
		hit:     "its checksum is another", allowed: "the next file is another set",
	},
	{
		name: "has-not", pattern: `\b(?:has|have|had) not(?:[.,;:)]|$)`,
		instead: `"does not have", or repeat the verb`,
		hit:     "the other host has not", allowed: "the other host does not have it",
	},
})

// terms lists words that have a standard word.
var terms = compileRules([]wordRule{
	{
		name: "authority", pattern: `(?:\b\w+ )?\bauthorit(?:y|ies)\b`, unless: `certificat(?:e|ion) authorit`,
		instead: `"CA"`,
		hit:     "the cluster's authority", allowed: "a certificate authority",
	},
	{
		name: "exchange", pattern: `\bexchang(?:e|es|ed|ing)\b`,
		instead: `"rotate", "replace"`,
		hit:     "keys are exchanged", allowed: "keys are rotated",
	},
	{
		name: "member-of-etcd", pattern: `\bmembers? of etcd\b`,
		instead: `"etcd member"`,
		hit:     "a member of etcd", allowed: "an etcd member",
	},
	{
		name: "key-of", pattern: `\bkeys? of service accounts?\b`,
		instead: `"service account key"`,
		hit:     "the key of service accounts", allowed: "the service account key",
	},
	{
		name: "manifest-of", pattern: `\bmanifest of (?:a|the|its|this) bundle\b`,
		instead: `"bundle manifest"`,
		hit:     "the manifest of a bundle", allowed: "the bundle manifest",
	},
	{
		name: "way-back", pattern: `\bways? back\b`,
		instead: `"rollback"`,
		hit:     "there is a way back", allowed: "the rollback",
	},
	{
		name: "way-to", pattern: `\bways? to the (?:API|cluster)\b`,
		instead: `"control plane endpoint", "API address"`,
		hit:     "the way to the API", allowed: "the API address",
	},
	{
		name: "take-off", pattern: takes + ` ` + fewWords + `(?:off|away)\b`,
		instead: `"remove"`,
		hit:     "take the host off", allowed: "take a snapshot",
	},
	{
		name: "cut-off", pattern: `\bcut (?:off|in half)\b`,
		instead: `"interrupted"`,
		hit:     "a step that was cut off", allowed: "an interrupted step",
	},
	{
		name: "of-then", pattern: `\bof (?:then|before)\b`,
		instead: `"previous X"`,
		hit:     "the keys of then", allowed: "the previous keys",
	},
	{
		name: "hears", pattern: `\b(?:hear|hears|heard)\b`,
		instead: `"receives"`,
		hit:     "hosts hear of it", allowed: "hosts receive it",
	},
})

// commentWords lists phrases that only comments must not have.
var commentWords = compileRules([]wordRule{
	{
		name: "answers",
		pattern: joinAlternatives(`^[\w.]+ answers\b`,
			`\banswers (?:the|a|an|whether|what|which|how|every|all|those|everything|nil|true|false|it|whom|who|with)\b`),
		instead: `"returns", "reports whether", "responds to"`,
		hit:     "allowed answers the rules", allowed: "wait until the API answers",
	},
	{
		name: "is-what", pattern: `\b` + toBe + ` (?:what|where|who)\b`,
		instead: "the purpose of the thing",
		hit:     "secrets are what a host logs in with", allowed: "secrets holds the secrets of a host",
	},
})

func compileRules(rules []wordRule) []wordRule {
	for i := range rules {
		rules[i].find = compilePhrase(rules[i].pattern)
		if rules[i].unless != "" {
			rules[i].except = compilePhrase(rules[i].unless)
		}
	}
	return rules
}

func joinAlternatives(patterns ...string) string { return "(?:" + strings.Join(patterns, "|") + ")" }

// compilePhrase compiles a pattern of a wordRule.
func compilePhrase(pattern string) *regexp.Regexp {
	return regexp.MustCompile("(?i)" + strings.NewReplacer(" ?", `\s*`, " ", `\s+`).Replace(pattern))
}

// findMatches returns the start and end of each place in text that breaks the
// rule.
func (r wordRule) findMatches(text string) [][2]int {
	var found [][2]int
	for _, at := range r.find.FindAllStringIndex(text, -1) {
		if r.except == nil || !r.except.MatchString(text[at[0]:at[1]]) {
			found = append(found, [2]int{at[0], at[1]})
		}
	}
	return found
}
