#include "report/html.hpp"

#include <gtest/gtest.h>

#include "report/svg.hpp"

namespace convoy::report {
namespace {

// Raw text does not compile into markup: as a value, as the literal, joined on, or as a part.
template <class Value>
concept GoesIntoMarkup = requires(const Value& value) {
  html("{}", value);
};
static_assert(GoesIntoMarkup<Html> && GoesIntoMarkup<int> && GoesIntoMarkup<double>);
static_assert(!GoesIntoMarkup<std::string> && !GoesIntoMarkup<std::string_view>);
static_assert(!GoesIntoMarkup<const char*> && !GoesIntoMarkup<char[4]> && !GoesIntoMarkup<char>);

template <class Text>
concept IsLiteral = requires(const Text& text) {
  html(text);
};
static_assert(!IsLiteral<std::string> && !IsLiteral<std::string_view> && !IsLiteral<const char*>);

template <class Text>
concept TurnsIntoMarkup = std::is_constructible_v<Html, Text> || std::is_assignable_v<Html&, Text>;
static_assert(TurnsIntoMarkup<Html>);
static_assert(!TurnsIntoMarkup<std::string> && !TurnsIntoMarkup<const char*>);

template <class Text>
concept IsAddedToMarkup = requires(Html markup, const Text& text) {
  markup + text;
}
|| requires(Html markup, const Text& text) {
  markup += text;
}
|| requires(Html markup, const Text& text) {
  text + markup;
};
static_assert(IsAddedToMarkup<Html>);
static_assert(!IsAddedToMarkup<std::string> && !IsAddedToMarkup<const char*>);

template <class Content>
concept IsContent = requires(const Content& content) {
  section("id", "Title", content);
}
|| requires(const Content& content) {
  details("summary", content);
}
|| requires(const Content& content) {
  figure("caption", Html(), content);
}
|| requires(Table table, const Content& content) {
  table.add({content});
};
static_assert(IsContent<Html>);
static_assert(!IsContent<std::string> && !IsContent<std::string_view>);

const std::string hostile = "<a href=\"x\" id='y'> & \x1b\xff";
const std::string shown = "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt; &amp; ??";

TEST(Html, EscapesText) {
  EXPECT_EQ(escape("<>&\"'").text(), "&lt;&gt;&amp;&quot;&#39;");
  EXPECT_EQ(escape(hostile).text(), shown);
  EXPECT_EQ(escape("grün, 12 µs").text(), "grün, 12 µs");
  EXPECT_TRUE(escape("").empty());
}

TEST(Html, MarkupIsWrittenAsItIs) {
  EXPECT_EQ(html("<b>{}</b> {:.1f} × {}", escape("<"), 2.25, 7).text(), "<b>&lt;</b> 2.2 × 7");
  EXPECT_EQ((html("<p>") + escape("&") + html("</p>")).text(), "<p>&amp;</p>");
  const std::vector<std::string> words{"a", "<", "b"};
  EXPECT_EQ(joined(words, " & ", escape).text(), "a &amp; &lt; &amp; b");
}

TEST(Html, AnAttributeIsAWordOrInQuotes) {
  EXPECT_EQ(attribute("c0").text(), "c0");
  EXPECT_EQ(attribute("k-sweep_2").text(), "k-sweep_2");
  EXPECT_EQ(attribute("c0 onload=x").text(), "\"c0 onload=x\"");
  EXPECT_EQ(attribute("\" onload=x").text(), "\"&quot; onload=x\"");
  EXPECT_EQ(attribute("").text(), "\"\"");
}

TEST(Html, PartsEscapeTheRawTextThatTheyTake) {
  Table table(hostile, {{hostile}, {html("<b>1</b>"), number_column}});
  table.add({escape(hostile), html("2")});
  Plot plot(hostile, {Scale::linear(0, 1), hostile, {}}, {Scale::linear(0, 1), hostile, {}});
  plot.dots(hostile, {{0, 0}});
  plot.line(hostile, {{0, 0}, {1, 1}}, hostile);
  plot.label({0, 0}, escape(hostile), hostile);
  const Html parts[] = {code(hostile),
                        counted(2, hostile),
                        table.html(),
                        details(hostile, Html()),
                        section(hostile, hostile, Html()),
                        plot.svg(),
                        legend({{hostile, hostile}}),
                        bar_cell(Scale::linear(0, 1), 1, hostile),
                        figure(hostile, Html(), Html())};
  for (const Html& part : parts) {
    EXPECT_EQ(part.text().find("<a "), std::string::npos) << part.text();
    EXPECT_EQ(part.text().find("id='y'"), std::string::npos) << part.text();
    EXPECT_NE(part.text().find(shown), std::string::npos) << part.text();
  }
}

TEST(Html, Numbers) {
  EXPECT_EQ(grouped(-1234567.8).text(), "-1,234,568");
  EXPECT_EQ(short_number(1230).text(), "1,230");
  EXPECT_EQ(short_number(0.03123).text(), "0.0312");
  EXPECT_EQ(ratio_text(0.0123).text(), "0.0123");
  EXPECT_EQ(time_text(12.3e-6).text(), "12.3 µs");
  EXPECT_EQ(bytes_text(1.25e6).text(), "1.25 MB");
  EXPECT_EQ(counted(1, "thread").text(), "1 thread");
  EXPECT_EQ(counted(2, "thread").text(), "2 threads");
}

}  // namespace
}  // namespace convoy::report
