package live

import (
	"image/color"

	"charm.land/lipgloss/v2"
)

// Each colour has a contrast of at least 4.5 to 1 with its background, white or
// black. No information is given by colour alone.
const (
	accentOnLight, accentOnDark = "#0550AE", "#79C0FF" // bars, the plot
	alarmOnLight, alarmOnDark   = "#953800", "#FFA657" // orange, which everybody can tell from blue
	faintOnLight, faintOnDark   = "#57606A", "#9DA7B3" // labels, messages
)

// styles are the text styles of the page.
type styles struct{ plain, strong, accent, alarm, faint lipgloss.Style }

func newStyles(dark bool) styles {
	of := func(light, onDark string) lipgloss.Style {
		var c color.Color = lipgloss.LightDark(dark)(lipgloss.Color(light), lipgloss.Color(onDark))
		return lipgloss.NewStyle().Foreground(c)
	}
	return styles{
		plain: lipgloss.NewStyle(), strong: lipgloss.NewStyle().Bold(true),
		accent: of(accentOnLight, accentOnDark), alarm: of(alarmOnLight, alarmOnDark).Bold(true), faint: of(faintOnLight, faintOnDark),
	}
}
