//! Pictures of curves.

use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;

use crate::report::Curve;

const SIZE: (u32, u32) = (760, 420);
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 90, 181),
    RGBColor(220, 50, 32),
    RGBColor(64, 130, 60),
    RGBColor(130, 80, 160),
    RGBColor(150, 110, 40),
];

/// Draws a curve with logarithmic axes, on which a straight horizontal line is a cost that does
/// not grow.
pub(crate) fn draw(curve: &Curve, file: &Path) {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE).unwrap();
    let points = || curve.lines.iter().flat_map(|line| &line.points);
    let xs = range(points().map(|point| point.0));
    let ys = range(points().map(|point| point.1));
    // At least a decade, so that what hardly grows looks so.
    let ys = ys.start.min(ys.end / 10.0)..ys.end;
    let mut chart = ChartBuilder::on(&root)
        .caption(curve.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(xs.log_scale(), ys.log_scale())
        .unwrap();
    chart
        .configure_mesh()
        .x_desc(curve.x)
        .y_desc(curve.y)
        .x_label_formatter(&|x| x.to_string())
        .y_label_formatter(&|y| y.to_string())
        .light_line_style(WHITE)
        .draw()
        .unwrap();
    for (line, colour) in curve.lines.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))
            .unwrap()
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()
        .unwrap();
    root.present().unwrap();
}

/// A range around some values.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (least, most) = values.fold((f64::MAX, f64::MIN), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    least * 0.8..most * 1.25
}
